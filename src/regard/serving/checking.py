"""The bounds of requests, looked at once more where the work begins: no facade can forget one."""

from __future__ import annotations

import math
from collections.abc import Sequence

from regard.serving.completions import Wishes
from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.shelf import Served, Task

VERBS: dict[Task, str] = {
    "translation": "translates",
    "language": "continues texts",
    "classification": "classifies",
    "tagging": "tags",
    "masked": "fills in words",
    "vectors": "has word vectors",
}
MOST_SEED = 2**63 - 1


def needs(served: Served, *tasks: Task) -> None:
    """Refuses a model that is for something else."""
    if served.task not in tasks:
        does = VERBS[served.task]
        wanted = " or ".join(VERBS[task] for task in tasks)
        raise Refused(400, f"the model {served.name} {does}", f"Name one that {wanted}", field="model")


def check_texts(texts: Sequence[str], limits: Limits, field: str = "text") -> None:
    if len(texts) > limits.texts:
        what = f"{len(texts):,} texts are more than {limits.texts:,}"
        raise Refused(400, what, "Send fewer at once", kind="too_many", field=field)
    for number, text in enumerate(texts, start=1):
        if len(text) > limits.characters:
            what = f"text {number} has {len(text):,} characters, more than {limits.characters:,}"
            raise Refused(400, what, "Split it", kind="too_long", field=field)
        _check_unicode(text, field)
    if (whole := sum(map(len, texts))) > limits.request_characters:
        what = f"the texts have {whole:,} characters together, more than {limits.request_characters:,}"
        raise Refused(400, what, "Send fewer at once", kind="too_long", field=field)


def check_count(name: str, value: int | None, least: int, most: int) -> None:
    if value is not None and not least <= value <= most:
        raise Refused(400, f"{name} is {value}, not from {least} to {most}", "Give such a number", field=name)


def check_wishes(prompt: str | Sequence[int], wishes: Wishes, limits: Limits) -> None:
    """A request for completions."""
    if isinstance(prompt, str):
        check_texts([prompt], limits, "prompt")
    elif len(prompt) > limits.characters:
        what = f"the prompt has {len(prompt):,} tokens, more than {limits.characters:,}"
        raise Refused(400, what, "Shorten it", kind="too_long", field="prompt")
    check_count("max_tokens", wishes.max_tokens, 0, limits.new_tokens)
    check_count("n", wishes.n, 1, limits.choices)
    check_count("best_of", wishes.best_of, wishes.n, limits.choices)
    check_count("logprobs", wishes.logprobs, 0, limits.logprobs)
    check_count("top_k", wishes.top_k, 0, 1 << 31)
    check_count("seed", wishes.seed, 0, MOST_SEED)
    if len(wishes.stop) > limits.stops:
        raise Refused(400, f"{len(wishes.stop)} stop texts are more than {limits.stops}", "Give fewer", field="stop")
    for stop in wishes.stop:
        if not 1 <= len(stop) <= limits.stop_characters:
            what = f"a stop text has {len(stop)} characters, not 1 to {limits.stop_characters}"
            raise Refused(400, what, "Give another one", field="stop")
        _check_unicode(stop, "stop")
    for name, value, wrong in (
        ("temperature", wishes.temperature, not 0 <= wishes.temperature <= 100),
        ("top_p", wishes.top_p, not 0 < wishes.top_p <= 1),
        ("min_p", wishes.min_p, not 0 <= wishes.min_p <= 1),
    ):
        if wrong or not math.isfinite(value):
            bounds = {"temperature": "from 0 to 100", "top_p": "above 0 and at most 1", "min_p": "from 0 to 1"}[name]
            raise Refused(400, f"{name} is {value}, not {bounds}", "Give such a number", field=name)


def _check_unicode(text: str, field: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refused(400, "a text has half a character", "Send valid Unicode", field=field) from None
