"""Pictures: what is merged adds up, every label is there as written, every file opens."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from regard.core.errors import ConfigError, DataError
from regard.evaluation.lengths import LengthBin
from regard.evaluation.metrics import Score
from regard.evaluation.plots import (
    alignment_text,
    draw_alignment,
    draw_curves,
    draw_lengths,
    merge_to_words,
    save_figure,
)


def attention(rows: int, columns: int) -> np.ndarray:
    weights = np.random.default_rng(rows * 100 + columns).random((rows, columns)) ** 4
    return weights / weights.sum(1, keepdims=True)


def test_merging_sums_over_source_and_averages_over_target():
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.4, 0.4, 0.1, 0.1], [0.0, 0.0, 0.0, 1.0]])
    merged, source, target = merge_to_words(weights, ["▁trans", "late", "▁it", "."], ["▁über", "setze", "</s>"])
    assert source == ["translate", "it", "."]
    assert target == ["übersetze", "</s>"]
    np.testing.assert_allclose(merged, [[0.55, 0.2, 0.25], [0.0, 0.0, 1.0]])


@pytest.mark.parametrize(
    ("pieces", "words"),
    [
        (["▁don", "'", "t", "▁go", "!", "?"], ["don", "'", "t", "go", "!", "?"]),
        (["▁(", "hel", "lo", ")", "</s>"], ["(", "hello", ")", "</s>"]),
        (["▁", "“", "▁", "Haus"], ["“", "Haus"]),
        (["Un", "▁hom", "me"], ["Un", "homme"]),
        (["<s>", "Un", "▁a"], ["<s>", "Un", "a"]),
        (["▁a", "▁", "▁b"], ["a", "▁", "b"]),
        (["c", "h", "a", "r"], ["c", "h", "a", "r"]),
        ([], []),
    ],
)
def test_words_of_pieces(pieces: list[str], words: list[str]):
    weights = attention(5, len(pieces)) if pieces else np.zeros((5, 0))
    merged, found, _ = merge_to_words(weights, pieces, ["x"] * 5)
    assert found == words
    np.testing.assert_allclose(merged.sum(1), 1.0 if pieces else 0.0)
    np.testing.assert_allclose(merge_to_words(weights.T, ["x"] * 5, pieces)[0].shape, (len(words), 5))


def test_labels_are_shown_as_written(tmp_path: Path):
    source, target = ["▁cost", "s", "$5", "a_{b}^2", "▁"], ["▁kostet", "$x$", "\\frac", "\x1b[31m"]
    figure = draw_alignment(attention(4, 5), source, target, title="$ and _")
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["cost", "s", "$5", "a_{b}^2", "␣"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["kostet", "$x$", "\\frac", "�[31m"]
    assert not any(t.get_parse_math() for t in [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.title])
    save_figure(figure, tmp_path / "a.svg")  # a label read as mathematics would fail here


def test_labels_do_not_overlap():
    for rows, columns in ((3, 3), (12, 60), (60, 4)):
        source, target = [f"Wortlänge{i}" for i in range(columns)], [f"länger{i}" for i in range(rows)]
        figure = draw_alignment(attention(rows, columns), source, target, "A title that is much too long " * 5)
        figure.draw_without_rendering()
        labels = [t.get_window_extent() for t in figure.axes[0].get_yticklabels()]
        assert all(a.y0 >= b.y1 - 1 for a, b in pairwise(labels))
        assert all(box.x0 >= 0 for box in labels)
        for text in figure.axes[0].get_xticklabels():
            assert text.get_window_extent().y1 <= figure.bbox.y1
        starts = [figure.axes[0].transData.transform((i, 0))[0] for i in range(columns)]
        height = figure.axes[0].get_xticklabels()[0].get_fontsize() * figure.dpi / 72
        assert all(b - a >= height for a, b in pairwise(starts))


@pytest.mark.parametrize("suffix", ["png", "svg", "pdf", "PNG"])
def test_files_open_in_any_script(tmp_path: Path, suffix: str):
    path = tmp_path / f"picture.{suffix}"
    contents = []
    for _ in range(2):
        figure = draw_alignment(attention(2, 3), ["▁我", "喜欢", "。"], ["أحب", "हिन्दी"], title="标题")
        save_figure(figure, str(path))
        contents.append(path.read_bytes())
    assert contents[0].startswith({"png": b"\x89PNG", "svg": b"<?xml", "pdf": b"%PDF"}[suffix.lower()])
    assert contents[0] == contents[1]
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_bad_places(tmp_path: Path):
    figure = draw_alignment(attention(1, 1), ["a"], ["b"])
    with pytest.raises(DataError, match="folder does not exist"):
        save_figure(figure, tmp_path / "no" / "a.png")
    with pytest.raises(ConfigError, match=r"Use \.png, \.svg, \.pdf"):
        save_figure(figure, tmp_path / "a.bmp")
    (tmp_path / "d.png").mkdir()
    with pytest.raises(DataError, match="directory"):
        save_figure(figure, tmp_path / "d.png")


def test_shapes_must_fit():
    for function in (draw_alignment, alignment_text, merge_to_words):
        with pytest.raises(DataError, match=r"\(2, 3\) do not fit 3 target and 2 source"):
            function(attention(2, 3), ["a", "b"], ["c", "d", "e"])
    with pytest.raises(DataError, match="no tokens"):
        draw_alignment(np.zeros((0, 0)), [], [])


def test_text_alignment():
    weights = np.array([[1.0, 0.0, 0.0], [0.0, 0.2, 0.8], [0.0, 0.6, 0.4]])
    assert alignment_text(weights, ["▁the", "▁big", "▁house"], ["▁das", "▁Haus", "▁groß"]) == "\n".join(
        [
            "     ┌ the",
            "     │ ┌ big",
            "     │ │ ┌ house",
            "das  ██",
            "Haus   ░░██",
            "groß   ▓▓▒▒",
        ]
    )


@pytest.mark.parametrize("width", [20, 40, 80])
def test_text_alignment_keeps_to_the_width(width: int):
    source = ["▁Donaudampfschifffahrtsgesellschaft", "翻译", "▁a", "b\x1b[0m"] * 10
    text = alignment_text(attention(3, 40), source, ["▁une", "▁traduction", "机器翻译机器翻译"], width)
    for line in text.splitlines():
        assert sum(2 if "一" <= c <= "鿿" else 1 for c in line) <= width
    assert "\x1b" not in text
    assert text.count("┌") == 40


def bins(values: list[float], interval: float | None = 2.0) -> list[LengthBin]:
    scores = [Score("BLEU", v, v - interval if interval else None, v + 1 if interval else None) for v in values]
    return [LengthBin(10 * i + 1, 10 * i + 10, 50, score, score) for i, score in enumerate(scores)]


def test_draw_lengths(tmp_path: Path):
    figure = draw_lengths({"one": bins([30.0, 28.0, 20.0]), "$two_": bins([31.0, 25.0], interval=None)})
    axes = figure.axes[0]
    assert [t.get_text() for t in axes.get_xticklabels()] == ["1-10\nn=50", "11-20\nn=50", "21-30\nn=50"]
    assert axes.get_title() == "BLEU by source length"
    legend = axes.get_legend()
    assert legend is not None
    assert [t.get_text() for t in legend.get_texts()] == ["one", "$two_"]
    save_figure(figure, tmp_path / "lengths.png")
    assert draw_lengths({"one": bins([30.0])}).axes[0].get_legend() is None
    with pytest.raises(DataError, match="no bins"):
        draw_lengths({})


def test_draw_curves(tmp_path: Path):
    rows = [
        {"step": 1, "loss": 5.0},
        {"step": 2, "loss": float("nan")},
        {"step": 3, "loss": 4.0, "valid_nll": 4.5, "valid_bleu": None},
        {"note": "no step", "loss": 9.0},
    ]
    figure = draw_curves(rows)
    assert len(figure.axes) == 1
    drawn = {str(line.get_label()): np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].get_lines()}
    assert drawn == {"training loss": [[1, 5], [3, 4]], "validation nll": [[3, 4.5]]}
    save_figure(figure, tmp_path / "curves.png")
    assert len(draw_curves([*rows, {"step": 3, "valid_bleu": 20.0}]).axes) == 2
    with pytest.raises(DataError, match="no row"):
        draw_curves([{"step": 1}])
