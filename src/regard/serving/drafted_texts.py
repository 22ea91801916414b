"""Completions that a small model guesses: one text at a time, the same as without it (see search/speculative.py)."""

from __future__ import annotations

import dataclasses
import secrets
import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.specials import EOS
from regard.serving.batched_tasks import Counted
from regard.serving.companions import Companions
from regard.serving.completions import Completed, Completion, Wishes
from regard.serving.drafts import Draft
from regard.serving.refusals import Refused
from regard.serving.shelf import Served
from regard.serving.writing import prompt_tokens, settings_of

if TYPE_CHECKING:
    from regard.tasks.language_model import TextModel


@dataclasses.dataclass(frozen=True)
class Guessed:
    """A prompt to go on from."""

    prompt: str | Sequence[int]
    wishes: Wishes


def check_drafted(served: Served, wishes: Wishes) -> None:
    """Refuses what cannot be guessed."""
    if served.beside.draft is None:
        what = f"`draft`: {served.name} has no small model that guesses"
        raise Refused(400, what, "Leave it out, or start the server with --draft", field="draft")
    others = {"n": wishes.n > 1, "best_of": (wishes.best_of or 1) > 1, "logprobs": wishes.logprobs is not None,
              "echo": wishes.echo, "max_tokens": wishes.max_tokens == 0}  # fmt: skip
    for name, given in others.items():
        if given:
            what = f"`{name}`: a draft guesses one text, of which nothing else is told"
            raise Refused(400, what, f"Leave draft or {name} out", field=name)


class WritingDrafted:
    """Prompts into completions. The key is the model's companions."""

    def __init__(self) -> None:
        self._drafted: weakref.WeakKeyDictionary[TextModel, TextModel] = weakref.WeakKeyDictionary()

    def cut(self, model: TextModel, wish: Guessed) -> list[Counted]:
        ids = prompt_tokens(model.tokenizer, wish.prompt)
        return [Counted((ids, wish.wishes), len(ids) + wish.wishes.max_tokens)]

    def compute(self, model: TextModel, key: Companions, units: Sequence[Counted]) -> list[Completed]:
        if model not in self._drafted:
            self._drafted[model] = model.drafted(key.load_draft(), key.ahead)
        return [self._written(self._drafted[model], *unit.what) for unit in units]

    def _written(self, model: TextModel, ids: list[int], wishes: Wishes) -> Completed:
        seed = secrets.randbits(63) if wishes.seed is None else wishes.seed
        passage = model.passage(ids, settings_of(model, wishes, seed))
        draft = Draft(model.tokenizer, ids, wishes, 0)
        for token, log_prob in zip([*passage.tokens, EOS], passage.log_probs, strict=False):
            draft.add(token, log_prob, (), ())
            if draft.finish is not None:
                break
        if draft.finish is None:
            draft.end("length")
        text = Completion(draft.text, draft.finish or "length", (), draft.log_prob)
        return Completed((text,), len(ids), draft.count)

    def join(self, model: TextModel, wish: Guessed, units: Sequence[Counted], found: list[Completed]) -> Completed:
        return found[0]
