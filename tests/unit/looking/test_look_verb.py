"""The verb `look`: which of its options go together, and what is refused before anything is opened."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--layer", "2"], "--layer: it goes with --save"),
        (["--row", "2"], "--row: it goes with --save"),
        (["--all-steps"], "--all-steps: it goes with --save"),
        (["--text", "Tired."], "--text: it goes with --save"),
        (["It was too tired."], "no such folder. A sentence is typed into the page"),
        (["--save", "page.html", "It was too tired."], "or given as --save PAGE.html --text SENTENCE"),
        (["--save", "page.html", "--text", ""], "the sentence: it is empty"),
        (["--host", "0.0.0.0", "--allow-host", "a b"], "no name of a machine"),
    ],
)
def test_what_does_not_go_together_is_said(command, arguments, message):
    found = command("look", "--no-browser", *arguments)
    assert found.code == 1
    assert message in found.err
    assert "Look at" not in found.out


@pytest.mark.parametrize("verb", ["look", "show", "serve", "export"])
def test_verbs_that_take_the_model_as_an_argument_say_so(command, verb):
    found = command(verb, "--model", "run")
    assert found.code == 2
    assert f"The model is given without it: `regard {verb} DIR`" in found.err


def test_a_page_is_saved_with_the_steps_of_one_place(command, tmp_path):
    out = tmp_path / "page.html"
    found = command("look", "--save", out, "--text", "Tired.", "--layer", "3", "--head", "2", "--device", "cpu")
    assert found.code == 0, found.err
    page = out.read_text(encoding="utf-8")
    assert '"start":"#view=steps&layer=2&head=1"' in page
    assert "steps?head=1&layer=2&part=encoder.self&row=0" in page
    for wrong, message in ((["--layer", "9"], "Give 1 to 5"), (["--layer", "2", "--all-steps"], "without --layer")):
        found = command("look", "--save", tmp_path / "x.html", "--text", "Tired.", *wrong, "--device", "cpu")
        assert found.code == 1
        assert message in found.err
        assert not (tmp_path / "x.html").exists()
