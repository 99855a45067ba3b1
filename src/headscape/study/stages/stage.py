"""What a stage of the analysis is: one measure of the heads, whole.

A stage is one file that owns everything about its measure: what it computes, how it sums up over windows (columns
of the head table, findings, notices), its figures, its section of the report, its cost. It joins the analysis by
one entry in :data:`headscape.study.stages.STAGES`; another package adds its own by an entry point in the group
``headscape.stages``.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from headscape.errors import InputError
from headscape.notices import Notice
from headscape.report.section import Section
from headscape.study.stages.context import Context
from headscape.study.stages.cost import Size
from headscape.study.stages.finding import Finding, Question
from headscape.study.stages.result import Result

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from headscape.study.study import Study

_BOUNDS = {
    "low": "lower bound",
    "high": "upper bound",
    "q25": "lower quartile",
    "q75": "upper quartile",
    "min": "smallest",
    "max": "largest",
}


@dataclass(frozen=True)
class Column:
    """A column of the head table.

    Parameters
    ----------
    name
        Its key.
    title
        As people read it.
    meaning
        One sentence.
    unit
        For example "nats"; empty for plain numbers.
    direction
        What a high value means, in a few words.
    panel, table
        Whether the panel of a head and the table of the report show it; the files have it in any case.
    """

    name: str
    title: str
    meaning: str
    unit: str = ""
    direction: str = ""
    panel: bool = False
    table: bool = True

    @property
    def explained(self) -> str:
        """Its meaning, and what a high value means.

        Examples
        --------
        >>> Column("k90", "k90", "Components.", direction="many directions matter").explained
        'Components. High: many directions matter.'
        """
        return f"{self.meaning} High: {self.direction}." if self.direction else self.meaning

    def with_bounds(self, *endings: str) -> "tuple[Column, ...]":
        """Return the column and those of its bounds, which only the files show.

        Examples
        --------
        >>> [column.title for column in Column("k90", "k90", "Components.").with_bounds("q25")]
        ['k90', 'k90, lower quartile']
        """
        bounds = [
            Column(
                f"{self.name}_{ending}",
                f"{self.title}, {_BOUNDS[ending]}",
                f"{_BOUNDS[ending].capitalize()}. {self.meaning}",
                self.unit,
                table=False,
            )
            for ending in endings
        ]
        return (self, *bounds)


@dataclass(frozen=True)
class Option:
    """A parameter of a stage: its name, its default, one sentence for the docs, and whether it is a list."""

    name: str
    default: Any
    meaning: str
    many: bool = False

    def value(self, given: Any) -> Any:
        """Return a given value as the stage takes it: one thing in place of a list is a list of one."""
        if not self.many or given is None or isinstance(given, Mapping):
            return given
        return list(given) if isinstance(given, Iterable) and not isinstance(given, str) else [given]


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a stage says over all windows.

    Parameters
    ----------
    columns
        Its columns of the head table, indexed by (layer, head).
    findings
        Sentences made from its numbers, each with the question it answers
        (:class:`headscape.study.stages.finding.Finding`; plain strings are details), the most important first.
    notices
        Named states that a reader must know first; ``remarks`` are those without consequence for the heads,
        which the report shows in the stage's own section.
    detail
        The stage's own result type: ``study[name]``.
    tables
        Further tables, written as NAME.csv beside heads.csv.
    """

    columns: "pd.DataFrame"
    findings: tuple[str, ...] = ()
    notices: tuple[Notice, ...] = ()
    remarks: tuple[Notice, ...] = ()
    detail: Any = None
    tables: "Mapping[str, pd.DataFrame]" = field(default_factory=dict)


def require_one_of(value: Any, name: str, allowed: Sequence[Any]) -> None:
    """Raise unless a value is one of those allowed; 0 and 1 are not truth values."""
    if not any(value is one or (isinstance(one, str) and value == one) for one in allowed):
        raise InputError(f"{name} must be {' or '.join(map(str, allowed))}, but is {value!r}.")


class NotApplicableError(Exception):
    """Raised by a stage that cannot measure this model or these data; the message says why."""


class NotExposedError(NotApplicableError):
    """Raised where a model does not expose what a stage needs: the stage is left out, even if it was asked for."""


class Stage(ABC):
    """One stage of the analysis; see the module's docstring.

    Attributes
    ----------
    name, title, doing
        As in ``--stages``, as a heading, and what the progress display says ("measuring entropies").
    columns, options
        What it adds to the head table, and its parameters.
    needs
        Names of the stages that must run before it.
    follows
        Names of the stages that it completes: it runs whenever one of them does.
    unit
        What one piece of its work is: a window, a layer (of the first window), or the whole model. A run that is
        interrupted loses at most one piece.
    cost
        Seconds that a piece takes at 270 heads and 256 tokens on 2 cores; only the expected time and the time left
        depend on it. :meth:`seconds` says how it grows.
    concurrent
        Whether threads may measure several windows at once, or a whole model beside other stages; a stage that runs
        the model must let one thread at a time do so.
    by_default, always
        Whether it runs by default, and whether also when only other stages are asked for.
    question
        Under which it says that it was left out.
    optional
        Whether it is skipped with a finding where it cannot be measured, even if it was asked for.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    doing: ClassVar[str]
    columns: ClassVar[tuple[Column, ...]] = ()
    options: ClassVar[tuple[Option, ...]] = ()
    needs: ClassVar[tuple[str, ...]] = ()
    follows: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[Literal["window", "layer", "model"]] = "window"
    cost: ClassVar[float] = 1.0
    concurrent: ClassVar[bool] = False
    by_default: ClassVar[bool] = True
    always: ClassVar[bool] = False
    optional: ClassVar[bool] = False
    question: ClassVar[Question] = Question.more

    @abstractmethod
    def measure(self, context: Context, piece: int) -> Result:
        """Measure one window, one layer, or the model (0)."""

    @abstractmethod
    def sum_up(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return what all pieces say together; cheap, since it is repeated whenever a study is loaded."""

    def figures(self, study: "Study", head: tuple[int, int] | None = None) -> "dict[str, Figure]":
        """Return figures for papers by name; ``head`` is the one to show where one is shown."""
        return {}

    def sections(self, study: "Study") -> tuple[Section, ...]:
        """Return what the report shows of this stage."""
        return ()

    def pieces(self, context: Context) -> tuple[int, ...]:
        """Return the windows, the layers, or (0,) for the model."""
        if self.unit == "layer":
            return context.data.layers
        return tuple(range(context.data.n_windows)) if self.unit == "window" else (0,)

    def part(self, piece: int) -> str:
        """Return the name of the part that holds the result of a piece."""
        return self.name if self.unit == "model" else f"{self.name}-{self.unit}-{piece:05d}"

    def seconds(self, size: Size, options: Mapping[str, Any]) -> float:
        """Return the expected seconds of a piece; unless a stage says more, they grow as heads x tokens^2."""
        return self.cost * size.times()

    def check(self, options: Mapping[str, Any]) -> None:  # noqa: B027  most stages have no options
        """Raise unless every option is of the right kind and within its bounds, before anything is loaded."""

    def defaults(self) -> dict[str, Any]:
        """Return the options with their defaults."""
        return {option.name: option.default for option in self.options}

    def outcome(self, context: Context, results: Sequence[Result]) -> Outcome:
        """Return what all pieces say, or why nothing was measured."""
        reason = next((result.missing for result in results if result.missing), "")
        if reason:
            sentence = f"{self.title} was left out: {reason.rstrip('.')}."
            return Outcome(context.frame({}), (Finding(sentence, self.question),))
        return self.sum_up(context, results)
