"""Bounds, refusals, keys, rates and metrics of a server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import math

import pytest

from regard.core.errors import ConfigError, DataError
from regard.serving.admission import FEW, Admission
from regard.serving.checking import check_texts, check_wishes
from regard.serving.completions import Wishes
from regard.serving.keys import Keys
from regard.serving.limits import SECONDS, SIZES, Limits
from regard.serving.metrics import MOST_SERIES, Metrics
from regard.serving.rates import Rates
from regard.serving.refusals import Refused


def test_every_limit_is_bounded_and_can_be_set():
    names = {field.name for field in dataclasses.fields(Limits)}
    assert names == SIZES.keys() | SECONDS.keys()
    found = Limits.from_settings(["beam=8", "wait_ms = 0", "receive_seconds=2.5", "answer_seconds=3"])
    assert (found.beam, found.wait_ms, found.receive_seconds, found.answer_seconds) == (8, 0, 2.5, 3.0)
    assert Limits.from_settings([]) == Limits()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("beam", "has no ="),
        ("bean=3", "Perhaps you mean limit.beam"),
        ("beam=0", "less than 1"),
        ("beam=65", "more than 64"),
        ("beam=1.5", "whole number"),
        ("beam=x", "whole number"),
        ("answer_seconds=0", "not above 0"),
        ("answer_seconds=nan", "finite"),
        ("drain_seconds=-1", "not above 0"),
        ("limit.beam=3", "no such setting"),
    ],
)
def test_wrong_limits_are_errors(setting, message):
    with pytest.raises(ConfigError, match=message):
        Limits.from_settings([setting])


def test_a_refusal_says_when_to_come_again():
    refused = Refused(503, "the queue is full", "Try again", kind="busy", retry_after=1.2)
    assert (refused.message, refused.headers) == ("The queue is full. Try again.", {"Retry-After": "2"})
    assert Refused(503, "x", "y", retry_after=0.0).headers == {"Retry-After": "1"}
    assert Refused(400, "x", "y").headers == {}


def test_keys_of_a_file_and_of_the_environment(tmp_path):
    file = tmp_path / "keys"
    file.write_text("# ours\nfirst-key-1234  # of the office\n\nsecond-key-1234\n")
    keys = Keys.read(file, {})
    assert [keys.number(key) for key in ("first-key-1234", "second-key-1234", "third-key-1234", "", None)] == [
        0,
        1,
        None,
        None,
        None,
    ]
    assert keys.allow("second-key-1234")
    assert not keys.allow("second-key-123")
    assert not keys.allow("\ud800")
    assert (bool(keys), len(keys), repr(keys)) == (True, 2, "Keys(2)")
    assert len(Keys.read(None, {"REGARD_KEYS": "abcdefgh,ijklmnop qrstuvwx"})) == 3
    assert not Keys.read(None, {})
    assert not any(b"first" in value for value in vars(keys)["_digests"])


@pytest.mark.parametrize("content", [b"", b"# none\n", b"short\n", b"\xff\xfe12345678\n", b"with space in it\n"])
def test_files_without_usable_keys_are_errors_that_do_not_quote_them(tmp_path, content):
    file = tmp_path / "keys"
    file.write_bytes(content)
    with pytest.raises((ConfigError, DataError)) as caught:
        Keys.read(file)
    assert "short" not in str(caught.value)
    assert "with space" not in str(caught.value)
    with pytest.raises(DataError, match="cannot be read"):
        Keys.read(tmp_path / "missing")


def test_a_client_has_so_many_requests_a_minute():
    now = [100.0]
    rates = Rates(Limits(requests_per_minute=3, clients=2), lambda: now[0])
    for _ in range(3):
        rates.check("a")
    with pytest.raises(Refused) as caught:
        rates.check("a")
    assert (caught.value.status, caught.value.kind, caught.value.headers) == (429, "rate", {"Retry-After": "20"})
    rates.check("b")
    now[0] += 20.1
    rates.check("a")
    with pytest.raises(Refused):
        rates.check("a")
    for name in "cdefg":
        rates.check(name)
    assert len(rates._buckets) == 2
    Rates(Limits()).check("a", 10**6)  # no bound


def test_metrics_are_written_as_prometheus_reads_them():
    metrics = Metrics()
    metrics.answered("deepl", 200, 0.02)
    metrics.answered("deepl", 200, 99.0)
    metrics.answered("../../x", 503, 0.0)
    metrics.gauge("regard_things", "Things", "", lambda: {"": 2.0})
    metrics.tokens_in.add('a"b\\c\n', by=2.5)
    lines = metrics.text().splitlines()
    for line in (
        'regard_requests_total{facade="deepl",status="200"} 2',
        'regard_requests_total{facade="other",status="503"} 1',
        'regard_request_seconds_bucket{facade="deepl",le="0.025"} 1',
        'regard_request_seconds_bucket{facade="deepl",le="60"} 1',
        'regard_request_seconds_bucket{facade="deepl",le="+Inf"} 2',
        'regard_request_seconds_sum{facade="deepl"} 99.02',
        'regard_request_seconds_count{facade="deepl"} 2',
        "regard_things 2",
        'regard_tokens_read_total{model="a\\"b\\\\c\\n"} 2.5',
        "# TYPE regard_request_seconds histogram",
    ):
        assert line in lines
    for number in range(MOST_SERIES + 50):
        metrics.refusals.add(str(number))
    assert len(metrics.refusals.values) == MOST_SERIES + 1
    assert metrics.refusals.total() == MOST_SERIES + 50


def test_admission_counts_requests_and_tokens_and_guesses_the_wait():
    now = [0.0]
    admission = Admission(Limits(queue=FEW + 2, queue_tokens=1000), lambda: now[0])
    with admission.admitted(100):
        now[0] += 1.0
    assert admission.rate == pytest.approx(100, rel=0.01)
    with contextlib.ExitStack() as others, admission.admitted(900):
        with pytest.raises(Refused, match="1 requests are"):
            admission.check(101, None)
        admission.check(1, 5.0)  # of so few nothing is guessed
        for _ in range(FEW):
            others.enter_context(admission.admitted(0))
        with pytest.raises(Refused, match="will take about 9 seconds") as caught:
            admission.check(1, 5.0)
        assert caught.value.retry_after == pytest.approx(9, rel=0.05)
        with admission.admitted(100, 10.0), pytest.raises(Refused) as caught:
            admission.check(0, None)
        assert (caught.value.status, caught.value.kind) == (503, "busy")
        assert caught.value.retry_after == pytest.approx(5, rel=0.05)
    assert (admission.requests, admission.tokens) == (0, 0)
    with admission.admitted(10**9):  # nobody else is there: whatever the bounds of requests allow
        pass
    assert admission.rate > 0
    admission.forget()  # a model was loaded
    now[0] += 1
    assert (admission.rate, admission.wait(1000)) == (0, 0)
    admission.closed = True
    with pytest.raises(Refused, match="being stopped"):
        admission.check(1, None)


@pytest.mark.parametrize("how", [asyncio.CancelledError, GeneratorExit])
def test_clients_that_go_do_not_make_the_server_seem_slow(how):
    """What they asked for keeps nobody waiting; what was not ready in time does."""
    now = [0.0]
    admission = Admission(Limits(), lambda: now[0])
    for _ in range(40):
        with contextlib.suppress(how), admission.admitted(100):
            now[0] += 0.5
            raise how
    assert admission.rate == pytest.approx(200, rel=0.05)
    for _ in range(40):
        with contextlib.suppress(Refused), admission.admitted(100):
            now[0] += 0.5
            raise Refused(503, "the answer was not ready in time", "Try again", kind="deadline")
    assert admission.rate < 40


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        ({"max_tokens": 1025}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"n": 0}, "n"),
        ({"n": 9}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 9}, "best_of"),
        ({"logprobs": 6}, "logprobs"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**63}, "seed"),
        ({"top_k": -1}, "top_k"),
        ({"stop": ("a",) * 5}, "stop"),
        ({"stop": ("",)}, "stop"),
        ({"stop": ("a" * 201,)}, "stop"),
        ({"stop": ("\ud800",)}, "stop"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_p": 0.0}, "top_p"),
        ({"top_p": 1.1}, "top_p"),
        ({"min_p": math.inf}, "min_p"),
    ],
    ids=str,
)
def test_wishes_beyond_the_bounds_are_refused(wishes, field):
    check_wishes("a", Wishes(), Limits())
    with pytest.raises(Refused) as caught:
        check_wishes("a", Wishes(**wishes), Limits())
    assert (caught.value.status, caught.value.field) == (400, field)


def test_texts_beyond_the_bounds_are_refused():
    limits = Limits(texts=2, characters=5, request_characters=8)
    check_texts(["12345", "123"], limits)
    for texts, kind in ((["", "", ""], "too_many"), (["123456"], "too_long"), (["12345"] * 2, "too_long")):
        with pytest.raises(Refused) as caught:
            check_texts(texts, limits)
        assert caught.value.kind == kind
    with pytest.raises(Refused, match="half a character"):
        check_texts(["\udc80"], limits)
    with pytest.raises(Refused, match="6 tokens"):
        check_wishes([1] * 6, Wishes(), limits)
