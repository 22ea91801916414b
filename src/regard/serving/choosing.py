"""How a request wants its translations chosen (in groups, by minimum Bayes risk, reranked, guessed), and what is told of them."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

from regard.core.search_config import SearchConfig
from regard.serving.companions import NONE, Companions
from regard.serving.limits import Limits
from regard.serving.refusals import Refused
from regard.serving.shelf import Served
from regard.tasks.pretrained import capabilities_of

if TYPE_CHECKING:
    from regard.serving.glossaries import Terms
    from regard.tasks.translation import Translator

SAMPLES = 32  # that `regard translate --mbr` draws
UTILITIES = ("chrf", "bleu")


@dataclasses.dataclass(frozen=True)
class Choosing:
    """What is wanted beside a plain search. Requests that want different things are computed in different batches."""

    groups: int = 1
    diversity: float | None = None
    mbr: str | None = None  # which likeness counts
    samples: int | None = None  # of it
    rerank: bool = False
    draft: bool = False
    details: bool = False  # tokens, scores, confidences
    alignment: bool = False  # linked words
    prefixed: bool = False  # texts must begin in a given way, which not every engine can do

    def settings(self, own: SearchConfig, beam: int | None, alternatives: int) -> SearchConfig:
        """The model's own settings with what was asked for, as `regard translate` makes them."""
        if self.draft:
            return dataclasses.replace(own, method="beam", beam=1, nbest=1, stop="full")
        wide = max(beam or own.beam, alternatives + 1)
        changes: dict[str, Any] = {}
        if self.groups > 1:
            wide = wide if beam is not None else -(-wide // self.groups) * self.groups
            changes = {"groups": self.groups}
            changes |= {} if self.diversity is None else {"diversity": self.diversity}
        return dataclasses.replace(own, method="beam", beam=wide, nbest=alternatives + 1, **changes)

    def drawn(self, limits: Limits) -> int:
        """How many translations minimum Bayes risk draws."""
        return self.samples or min(SAMPLES, limits.samples)

    def cost(self, limits: Limits) -> int:
        """About how many times the work of a plain search this is."""
        return max(1, self.drawn(limits) // 4) if self.mbr else 2 if self.rerank else 1

    def check(
        self, served: Served, beam: int | None, alternatives: int, terms: Terms | None, limits: Limits
    ) -> Choosing:
        """Refuses what is out of bounds or cannot be had together; gives what is wanted, with its defaults."""
        self._check_bounds(beam, alternatives, limits)
        self._check_risk(beam, alternatives, terms)
        self._check_draft(served, beam, alternatives, terms)
        if self.groups > 1 and self.rerank:
            _refuse("groups", "reranking wants the best of one beam", "Leave one of the two out")
        if self.rerank and not served.beside.reranks:
            todo = "Leave it out, or start the server with --channel, --rerank-lm or --rerank-with"
            _refuse("rerank", f"{served.name} has no models to rerank with", todo)
        if self.alignment and "attends" not in capabilities_of(served.config["model"]):
            _refuse(
                "alignment", f"{served.name} has no attention over the source", "Leave it out, or use another model"
            )
        return dataclasses.replace(self, samples=self.drawn(limits)) if self.mbr else self

    def _check_bounds(self, beam: int | None, alternatives: int, limits: Limits) -> None:
        if not 1 <= self.groups <= limits.beam:
            _refuse("groups", f"{self.groups} is not from 1 to {limits.beam}", "Give such a number")
        if self.diversity is not None and not 0 <= self.diversity <= 100:
            _refuse("diversity", "it is not from 0 to 100", "Give such a number")
        if self.diversity is not None and self.groups == 1:
            _refuse("diversity", "it is for groups of a beam", "Add groups, or leave it out")
        if self.groups > 1 and beam is not None and (beam % self.groups or beam <= alternatives):
            _refuse("groups", f"{self.groups} does not divide a beam of {beam}", "Use a beam that is a multiple")
        if self.mbr is not None and self.mbr not in UTILITIES:
            _refuse("mbr", "it is neither chrf nor bleu", "Send one of them")
        if self.samples is not None and not 2 <= self.samples <= limits.samples:
            _refuse("samples", f"{self.samples} is not from 2 to {limits.samples}", "Give such a number")
        if self.samples is not None and self.mbr is None:
            _refuse("samples", "they are drawn for minimum Bayes risk only", "Add mbr, or leave it out")

    def _check_risk(self, beam: int | None, alternatives: int, terms: Terms | None) -> None:
        if self.mbr is None:
            return
        for name, given in (("beam", beam is not None), ("groups", self.groups > 1)):
            if given:
                _refuse(name, "it is for searching, and minimum Bayes risk draws at random", "Leave one of the two out")
        if self.rerank:
            _refuse("rerank", "minimum Bayes risk chooses by itself", "Leave one of the two out")
        if terms is not None:
            _refuse("glossary", "what is drawn at random has no terms", "Leave mbr out, or this")
        if self.samples is not None and alternatives >= self.samples:
            _refuse("samples", f"{self.samples} are too few for {alternatives} alternatives", "Ask for more")

    def _check_draft(self, served: Served, beam: int | None, alternatives: int, terms: Terms | None) -> None:
        if not self.draft:
            return
        if served.beside.draft is None:
            todo = "Leave it out, or start the server with --draft"
            _refuse("draft", f"{served.name} has no small model that guesses", todo)
        if served.beside.writes_together:
            _refuse("draft", f"{served.name} is several models, and a draft guesses for one", "Leave it out")
        others = {"beam": beam not in (None, 1), "alternatives": alternatives > 0, "groups": self.groups > 1,
                  "mbr": self.mbr is not None, "rerank": self.rerank, "glossary": terms is not None}  # fmt: skip
        for name, given in others.items():
            if given:
                _refuse(name, "a draft guesses one text at a time, a plain one", f"Leave draft or {name} out")


PLAIN = Choosing()


def _refuse(field: str, what: str, todo: str) -> NoReturn:
    raise Refused(400, f"`{field}`: {what}", todo, field=field)


class Variants:
    """A model in the ways that requests want it: each made ready once, and kept as long as the model is loaded."""

    def __init__(self) -> None:
        self._known: weakref.WeakKeyDictionary[Translator, dict[Any, Any]] = weakref.WeakKeyDictionary()

    def of(self, model: Translator, choosing: Choosing, terms: Terms | None, beside: Companions = NONE) -> Translator:
        known = self._known.setdefault(model, {})

        def once(key: Any, make: Callable[[], Any]) -> Any:
            if key not in known:
                known[key] = make()
            return known[key]

        found = model
        if choosing.draft:
            found = once("draft", lambda: model.drafted(beside.load_draft(), beside.ahead))
        if choosing.mbr is not None:
            from regard.tasks.minimum_risk import MinimumRisk

            found = found.choosing(MinimumRisk(samples=choosing.samples or SAMPLES, utility=choosing.mbr))
        elif choosing.rerank:
            found = found.choosing(once("reranker", beside.load_reranker))
        if terms is not None:
            ready = once(terms, lambda: model.with_glossary(terms.glossary))
            found = ready if found is model else _with_terms(found, ready)
        return found


def _with_terms(model: Translator, ready: Translator) -> Translator:
    """A model with the terms of another of its variants, which are ready."""
    other = model.guarded(model.guard)
    other.terminology = ready.terminology
    return other
