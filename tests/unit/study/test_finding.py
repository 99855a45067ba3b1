"""Findings: their questions, their order, and where their statistics go."""

from headscape.study.stages.finding import Finding, Question, as_finding
from studies import small_study


def test_a_finding_is_a_sentence_with_its_question_and_statistics():
    found = Finding("Heads differ.", Question.unusual, "p < 0.01")
    assert (found, found.question, found.statistics) == ("Heads differ.", Question.unusual, "p < 0.01")
    assert as_finding("Plain.").question is Question.more
    assert as_finding(found) is found


def test_a_study_answers_in_the_order_in_which_people_ask():
    study = small_study(windows=4)
    places = [finding.question.place for finding in study.findings]
    assert places == sorted(places)
    assert sum(map(len, study.answers.values())) == len(study.findings)
    answers = study.summary()["answers"]
    assert [one["finding"] for found in answers.values() for one in found] == list(study.findings)
    stability = study["entropy"].stability
    assert {"finding": stability.verdict, "statistics": stability.statistics} in answers[str(Question.sure)]
