"""Tags and placeholders."""

from __future__ import annotations

import time

import pytest

from regard.data.checks.markup import markup_agrees, tags_balance


@pytest.mark.parametrize(
    "text",
    [
        "plain",
        "a <b>bold</b> word",
        "<g id='1'>x</g> <x id=\"2\"/> <br> <br /> <IMG src=a>",
        "<B>case</b>",
        "a < b and c > d, I <3 you, 5<6>4",
        "<p>a paragraph may stay open",
        "an arrow -> <- <-- and a mail <someone@example.org>",
    ],
)
def test_tags_balance(text):
    assert tags_balance(text)


@pytest.mark.parametrize("text", ["<b>open", "closed</b>", "<b><i>x</b>", '<a href="x">y', "<b>x</i>", "<b/></b>"])
def test_tags_do_not_balance(text):
    assert not tags_balance(text)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<b>one</b> two", "zwei <b>eins</b>"),
        ("<a href='en'>x</a>", "<a href='de'>x</a>"),
        ("{0} of {1}", "{1} von {0}"),
        ("{{ name }}", "{{name}}"),
        ("%s has %d", "%d von %s"),
        ("100 %", "100%"),
        ("50 %s", "50 Prozent"),
        ("10%ige", "10 per cent"),
        ("5 %d'entre eux", "5 of them"),
        ("100%", "alles"),
        ("a {set, of} things", "ein {Menge von} Ding"),
    ],
)
def test_markup_agrees(source, target):
    assert markup_agrees(source, target)
    assert markup_agrees(target, source)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("<b>one</b>", "eins"),
        ("<b>one</b>", "<i>eins</i>"),
        ("{0} of {1}", "{0} von {0}"),
        ("{name}", "{Name}"),
        ("%s has", "hat"),
        ("%(who)s has", "%(wer)s hat"),
        ("%1$s", "%2$s"),
        ("{0} {0}", "{0}"),
    ],
)
def test_markup_differs(source, target):
    assert not markup_agrees(source, target)
    assert not markup_agrees(target, source)


@pytest.mark.parametrize(
    "text", ["<a " * 50_000, "<a" + " " * 100_000, "{" * 100_000, "{" + " " * 100_000, "%" * 100_000]
)
def test_the_worst_lines_are_read_in_reasonable_time(text):
    began = time.perf_counter()
    assert tags_balance(text)
    assert markup_agrees(text, "plain")
    assert time.perf_counter() - began < 5
