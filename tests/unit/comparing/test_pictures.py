"""The charts and pictures of a comparison: points where the numbers are, whatever the numbers are."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
from comparisons import write_comparison

from regard.comparing import charts
from regard.comparing.charts import alignment_chart, curves_chart, lengths_chart, range_chart
from regard.comparing.page_style import DARK, STYLE
from regard.comparing.pictures import draw_attention, draw_curves, write_pictures
from regard.comparing.results import Alignment
from regard.comparing.summary import summarise
from regard.evaluation.lengths import LengthBin
from regard.evaluation.metrics import Score
from regard.evaluation.plots import draw_lengths
from regard.evaluation.series import COLOURS, look


def bins(*values: float) -> list[LengthBin]:
    edges = [(1, 10), (11, 20), (21, None)]
    return [
        LengthBin(low, high, 50, Score("BLEU", value, value - 2, value + 3), Score("chrF", value))
        for (low, high), value in zip(edges, values, strict=False)
    ]


def parse(svg: str) -> ElementTree.Element:
    return ElementTree.fromstring(svg)


def numbers_of(path: str) -> list[float]:
    return [float(number) for number in re.findall(r"-?\d+\.?\d*", path)]


def test_lengths_lie_where_they_should():
    svg = parse(lengths_chart({"a": bins(40, 20, 10), "b": bins(30, 30, 30)}, {"a": 0, "b": 1}))
    first, second = (numbers_of(p.get("d")) for p in svg.iter("path") if p.get("class").startswith("curve"))
    tops = first[1::2]
    assert tops == sorted(tops)  # lower scores lie lower
    assert len(set(second[1::2])) == 1
    ticks = {t.text: float(t.get("y")) for t in svg.iter("text") if t.text and re.fullmatch(r"\d+", t.text)}
    assert tops[1] == pytest.approx(ticks["20"] - 4.5, abs=0.11)
    labels = [text.text for text in svg.iter("text")]
    for label in ("1-10", "11-20", "21+", "n = 50", "BLEU"):
        assert label in labels
    assert sum(p.get("class").startswith("range") for p in svg.iter("path")) == 6


def test_curves_cut_what_goes_astray():
    calm = [(step, 3.0 - 0.001 * step) for step in range(0, 1001, 100)]
    svg = parse(curves_chart({"a": calm, "b": [(100, 4000.0), (200, 2.9)]}, {"a": 0, "b": 1}, "steps of training"))
    labels = [float(t.text.replace(",", "")) for t in svg.iter("text") if re.fullmatch(r"[\d.,]+", t.text or "")]
    assert max(labels) == 1000  # of steps; no tick is near the 4000
    assert sum(label < 10 for label in labels) >= 3
    assert "steps of training" in [text.text for text in svg.iter("text")]
    for curve in ([(100, 2.0)], [(0, 0.0)], [(100, 2.0), (200, 2.0)]):
        parse(curves_chart({"a": curve}, {"a": 0}, "steps"))


def test_alignments_by_words():
    alignment = Alignment(
        source=("▁ein", "▁Hau", "s"), target=("▁a", "▁house"), weights=((0.9, 0.05, 0.05), (0.2, 0.5, 0.3))
    )
    svg = parse(alignment_chart("x", alignment))
    assert [text.text for text in svg.iter("text")] == ["ein", "Haus", "a", "house"]
    cells = [float(r.get("fill-opacity")) for r in svg.iter("rect") if r.get("class") == "cell"]
    assert cells == [0.9, 0.1, 0.2, 0.8]
    assert "Nothing was written" in alignment_chart("x", Alignment(source=("▁a",), target=(), weights=()))
    many = tuple(f"▁w{i}" for i in range(500))
    large = parse(alignment_chart("x", Alignment(source=many, target=many, weights=((0.5,) * 500,) * 500)))
    assert len([r for r in large.iter("rect") if r.get("class") == "cell"]) == charts.MOST_WORDS**2


def test_ranges_share_an_axis():
    one = numbers_of(parse(range_chart(0, 20, 10, 30, (10, 60), [])).findall("path")[1].get("d"))
    other = numbers_of(parse(range_chart(1, 50, 40, 60, (10, 60), [49, 51])).findall("path")[1].get("d"))
    assert one[0] == 6  # the lowest end of all
    assert other[-1] == 144  # and the highest
    assert one[2] < other[0]
    parse(range_chart(0, 5, 5, 5, (5, 5), []))


def test_ticks_are_round():
    assert charts._ticks(0, 31) == [0, 10, 20, 30, 40]
    assert charts._ticks(1.93, 4.4) == [1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5]
    for low, high in ((0, 1e-6), (0, 0.3), (5, 5), (0, 1e7), (2.0, 2.1)):
        ticks = charts._ticks(low, high)
        assert 2 <= len(ticks) <= 8 or low == high
        assert ticks[0] <= low <= high <= ticks[-1] + 1e-9


def test_figures_for_many_systems_with_long_names(tmp_path: Path):
    names = {f"m{i}": f"transformer model.width={i} model.positions=rotary $x_{i}$" for i in range(12)}
    lengths = draw_lengths({name: bins(40, 20, 10) for name in names.values()}, title="", below=True)
    legend = [text.get_text() for text in lengths.legends[0].get_texts()]
    assert len(legend) == 12
    lengths.draw_without_rendering()
    box, axes = lengths.legends[0].get_window_extent(), lengths.axes[0].get_window_extent()
    assert box.y1 <= axes.y0  # below the picture, not over it
    assert box.x0 >= 0
    assert box.x1 <= lengths.bbox.x1
    assert axes.height > 150
    curves = draw_curves({slug: [(1.0, 3.0), (2.0, 2.0)] for slug in names}, names, "steps")
    curves.draw_without_rendering()
    assert curves.legends[0].get_window_extent().y1 <= curves.axes[0].get_window_extent().y0


def test_attention_is_drawn_by_words():
    alignment = Alignment(
        source=("▁ein", "▁Hau", "s"), target=("▁a_$", "▁house"), weights=((0.9, 0.05, 0.05), (0.2, 0.5, 0.3))
    )
    axes = draw_attention(alignment, "x_$").axes[0]
    assert axes.get_title() == "x_$"
    assert [t.get_text() for t in axes.get_xticklabels()] == ["ein", "Haus"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["a_$", "house"]
    assert np.asarray(axes.images[0].get_array()).ravel().tolist() == pytest.approx([0.9, 0.1, 0.2, 0.8])
    many = tuple(f"▁w{i}" for i in range(charts.MOST_WORDS + 9))
    large = draw_attention(Alignment(source=many, target=many, weights=((0.5,) * len(many),) * len(many)), "x")
    assert large.axes[0].images[0].get_size() == (charts.MOST_WORDS, charts.MOST_WORDS)


def test_a_system_looks_the_same_on_the_page_and_in_the_pictures():
    assert len(DARK) == len(COLOURS)
    for number in range(30):
        assert f"--s{number % charts.COLOURS}: {look(number)['color']};" in STYLE
    assert len({tuple(look(number).items()) for number in range(30)}) == 30


def test_pictures_are_written_where_there_is_something_to_draw(tmp_path: Path):
    write_comparison(tmp_path, {"a": 0.2, "b": 0.4}, seeds=(1,), blind=["b"], count=20)
    written = write_pictures(tmp_path, summarise(tmp_path))
    assert sorted(written) == ["alignment-a", "curves", "lengths"]
    assert all((tmp_path / file).is_file() for file in written.values())
