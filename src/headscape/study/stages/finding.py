"""Findings: sentences made from the numbers of a stage, each with the question it answers."""

from enum import StrEnum
from typing import Self


class Asked(StrEnum):
    """Questions in the order in which a report answers them."""

    @property
    def place(self) -> int:
        """Its place in the order."""
        return list(type(self)).index(self)

    @property
    def first(self) -> bool:
        """Whether its answers stand on the first screen; details are a click away."""
        return True


class Question(Asked):
    """What people ask about the heads of a model, in the order in which the report answers."""

    kinds = "What kinds of heads are there?"
    alike = "Which heads are alike?"
    unusual = "What is unusual?"
    little = "Which heads do little, and was that tested?"
    sure = "How sure is this?"
    after = "What next?"
    more = "What else was measured?"

    @property
    def first(self) -> bool:
        """Whether its answers stand on the first screen: all but the details."""
        return self is not Question.more


class Finding(str):
    """A sentence that anyone who knows transformers understands.

    Parameters
    ----------
    sentence
        With its subject, its number and what follows from it.
    question
        What it answers; plain strings answer the last, "What else was measured?".
    statistics
        The numbers behind it, which the report shows at a click and the terminal with ``--verbose``.

    Examples
    --------
    >>> found = Finding("5 of 270 heads attend to the previous token.", Question.kinds, "medians over 6 windows")
    >>> found, found.question.place, found.statistics
    ('5 of 270 heads attend to the previous token.', 0, 'medians over 6 windows')
    """

    question: Asked
    statistics: str

    def __new__(cls, sentence: str, question: Asked = Question.more, statistics: str = "") -> Self:
        """Make the sentence; a string, so that it goes wherever text goes."""
        made = super().__new__(cls, sentence)
        made.question, made.statistics = question, statistics
        return made


def as_finding(sentence: str) -> Finding:
    """Return a sentence with the question it answers."""
    return sentence if isinstance(sentence, Finding) else Finding(sentence)
