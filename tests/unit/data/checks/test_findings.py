"""Names, thresholds and wording of findings."""

from __future__ import annotations

import re

import pytest

from regard.core.errors import DataError
from regard.data.checks.collecting import make_finding
from regard.data.checks.findings import FINDINGS, RULES, known_names, severity_of
from regard.data.checks.report import Report
from regard.data.checks.wording import many_lines, numbered, percent, stretch


def test_every_finding_has_a_good_name_and_an_explanation():
    for name, what in FINDINGS.items():
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name)
        assert what
        assert "\n" not in what
        assert not what.endswith(".")


@pytest.mark.parametrize(
    ("name", "count", "share", "severity"),
    [
        ("null-characters", 1, 1e-9, "damage"),
        ("not-utf8", 1, 1e-9, "damage"),
        ("lone-surrogates", 1, 1e-9, "damage"),
        ("mojibake", 10, 0.01, "damage"),
        ("mojibake", 9, 0.009, "warning"),
        ("mojibake", 2, 0.5, "warning"),  # of a tiny file
        ("replacement-characters", 10, 0.01, "damage"),
        ("empty-side", 10, 0.1, "damage"),
        ("empty-side", 9, 0.09, "warning"),
        ("empty-side", 1, 0.0005, "note"),
        ("wrong-script", 10, 0.1, "damage"),
        ("wrong-script", 9, 0.09, "warning"),
        ("copied-source", 25, 0.25, "damage"),
        ("copied-source", 24, 0.24, "warning"),
        ("duplicates", 10_000, 0.5, "damage"),
        ("duplicates", 9_999, 0.5, "warning"),
        ("duplicates", 49, 0.49, "warning"),
        ("duplicates", 4, 0.04, "note"),
        ("near-duplicates", 99, 0.99, "warning"),
        ("leaked-pairs", 5, 0.05, "damage"),
        ("leaked-pairs", 1, 0.0001, "warning"),
        ("leaked-sources", 5, 0.05, "warning"),
        ("wrong-language", 25, 0.25, "damage"),
        ("wrong-language", 24, 0.24, "warning"),
        ("different-numbers", 100, 1.0, "warning"),
        ("length-ratio", 100, 1.0, "warning"),
        ("length-ratio", 1, 0.01, "note"),
        ("special-spaces", 100, 1.0, "note"),
        ("soft-hyphens", 100, 1.0, "note"),
        ("crlf", 100, 1.0, "note"),
        ("mixed-line-ends", 1, 0.001, "warning"),
        ("unbalanced-markup", 100, 1.0, "warning"),
    ],
)
def test_severities_follow_the_table(name, count, share, severity):
    assert severity_of(name, count, share) == severity


def test_an_unknown_name_is_an_error_that_names_the_nearest():
    with pytest.raises(DataError) as caught:
        known_names(["duplicates", "mojibak"])
    assert str(caught.value) == (
        "--allow mojibak: there is no finding of this name. Did you mean mojibake? All names are shown by `regard data findings`."
    )
    assert known_names(["mojibake", "crlf", "crlf"]) == {"mojibake", "crlf"}
    with pytest.raises(DataError, match=r"no finding of this name\. All names"):
        known_names(["%"])


@pytest.mark.parametrize(
    ("share", "text"),
    [
        (0.5, "50 %"),
        (0.123, "12 %"),
        (0.0123, "1.2 %"),
        (0.00001, "0.001 %"),
        (0.0, "0 %"),
        (1.0, "100 %"),
        (1e-9, "0.0001 %"),
    ],
)
def test_shares_are_written_as_percent(share, text):
    assert percent(share) == text


def test_lines_are_listed():
    assert numbered([3], 1) == "line 3"
    assert numbered([3, 1200], 2) == "lines 3 and 1,200"
    assert numbered([3, 5, 9], 3) == "lines 3, 5 and 9"
    assert numbered([3, 5], 1002) == "lines 3, 5 and 1,000 more"
    assert stretch(0, 1) == "line 1"
    assert stretch(1999, 3000) == "lines 2,000 to 3,000"


def test_a_finding_of_lines_is_one_sentence():
    many = many_lines("empty-side", 12, 1000, 0.012, [3, 17], (10, 2))
    assert (
        many
        == "12 of 1,000 pairs (1.2 %) are empty on one side (10 in the source, 2 in the target): lines 3, 17 and 10 more."
    )
    one = many_lines("mojibake", 1, 1, 1.0, [1], (0, 1))
    assert one.startswith("1 of 1 pair (100 %) has UTF-8 that was read")
    assert one.endswith("(in the target): line 1.")
    assert "differs from" in many_lines("near-duplicates", 1, 10, 0.1, [1])
    assert "differ from" in many_lines("near-duplicates", 2, 10, 0.2, [1, 2])


def test_every_rule_makes_a_sentence():
    for name, rule in RULES.items():
        if rule.phrase:
            text = many_lines(name, 2, 4, 0.5, [1, 2])
            assert "{" not in text
            assert text.startswith("2 of 4 pairs (50 %) ")
            assert rule.todo


def test_damage_says_how_to_allow_it_and_a_refusal_says_it_once():
    found = make_finding("mojibake", "damage", 5, 0.5, "Five lines are damaged.")
    assert found.todo == "`regard data clean` mends them. If it is meant so, --allow mojibake accepts it."
    assert "--allow" not in make_finding("mojibake", "warning", 5, 0.5, "Five.").todo
    report = Report(("a.en", "a.de"), None, (found,), 1.0)  # type: ignore[arg-type]
    with pytest.raises(DataError) as caught:
        report.refuse()
    assert str(caught.value) == (
        "a.en and a.de: the text is damaged: mojibake: Five lines are damaged. `regard data clean` mends them. "
        "If it is meant so, --allow mojibake accepts it; `regard data check` shows all."
    )
