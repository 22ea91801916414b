"""The log: one JSON object per line, cut back on resume."""

import json

from regard.training.log import MetricsLog, read_metrics


def test_rows_come_back_as_written(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", 0)
    log.add(1, {"loss": 0.1 + 0.2})
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1, "loss": 0.1 + 0.2}]  # there at once, and exact
    log.add(2, {"loss": 1e-30, "epoch": 3})
    log.close()
    assert read_metrics(tmp_path / "metrics.jsonl")[1] == {"step": 2, "loss": 1e-30, "epoch": 3}


def test_resume_drops_what_comes_again_and_a_torn_line(tmp_path):
    path = tmp_path / "metrics.jsonl"
    rows = [{"step": step, "loss": 1 / step} for step in range(1, 7)]
    whole = "".join(json.dumps(row) + "\n" for row in rows)
    path.write_text(whole + '{"step": 7, "lo')
    log = MetricsLog(path, from_step=4)
    assert path.read_text() == "".join(json.dumps(row) + "\n" for row in rows[:4])
    log.add(5, {"loss": 9.0})
    log.close()
    assert [row["step"] for row in read_metrics(path)] == [1, 2, 3, 4, 5]
    assert path.read_text().endswith("\n")


def test_a_torn_line_before_the_checkpoint_does_not_swallow_the_next(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 1}\n{"step": 2, "l')
    log = MetricsLog(path, from_step=9)
    log.add(10, {})
    log.close()
    assert read_metrics(path) == [{"step": 1}, {"step": 10}]


def test_what_is_not_finite_is_null(tmp_path):
    log = MetricsLog(tmp_path / "metrics.jsonl", 0)
    log.add(1, {"loss": float("nan"), "gradient_norm": float("inf"), "lr": 0.5, "skipped": 1})
    log.close()
    text = (tmp_path / "metrics.jsonl").read_text()
    assert json.loads(text, parse_constant=lambda name: f"not JSON: {name}") == {
        "step": 1, "loss": None, "gradient_norm": None, "lr": 0.5, "skipped": 1
    }  # fmt: skip
    assert read_metrics(tmp_path / "nothing.jsonl") == []


def test_bytes_that_are_no_text_do_not_stop_a_resume(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"step": 1}\n\xff\xfe\x00\n[3]\n{"step": 2}\n')
    assert read_metrics(path) == [{"step": 1}, {"step": 2}]
