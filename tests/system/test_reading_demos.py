"""The demos of models that read: from the package alone to scores and sentences."""

from __future__ import annotations

import pytest

from regard.cli import demo_reading


@pytest.mark.parametrize(
    ("demo", "said"),
    [
        (demo_reading.run_tag_demo, ["most frequent tag", "flies/", "regard tag --model"]),
        (demo_reading.run_classify_demo, ["always email: accuracy 22.1", "friendly staff", "regard classify --model"]),
    ],
    ids=["tag", "classify"],
)
def test_a_demo_trains_scores_and_shows(demo, said, tmp_path, monkeypatch, capsys):
    found = []

    def few(config, tokenizers, labels, text, seconds):
        found.append(steps(config, tokenizers, labels, text, 1))
        return 2

    steps = demo_reading._affordable_steps
    monkeypatch.setattr(demo_reading, "_affordable_steps", few)
    monkeypatch.setattr(demo_reading, "PROBE_STEPS", 2)
    demo(tmp_path / "run", 5)
    shown = " ".join(capsys.readouterr().out.split())
    for text in said:
        assert text in shown, shown
    assert found[0] >= 20
    assert (tmp_path / "run" / "scores.json").exists()
