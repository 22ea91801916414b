"""The most probable next words after a prompt.

A token may be a part of a word. So the tokens that may come next are followed further, the most probable beginning first,
until each word has ended: P(word) is the sum, over all ways to write it in tokens, of the probability that the model writes
it and then something that is no longer part of it (white space, punctuation, the end of the text).

A word is a run of letters and digits, with apostrophes and hyphens inside; every other visible character is a word by itself.
White space before a word belongs to it.
"""

from __future__ import annotations

import heapq
import itertools
import re
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from regard.core.errors import ConfigError, ModelError
from regard.core.types import BOS, EOS, PAD, SPECIALS, UNK
from regard.data.tokenizers import Tokenizer
from regard.models.base import LanguageModel
from regard.search.text_scores import no_source
from regard.tasks.text_pieces import UNDECIDED

END = SPECIALS[EOS]
MOST_ROWS = 1000
FLOOR = 1e-6  # beginnings less probable than this are not followed
SMALL = 1e-5  # other ways to write a word that is shown are followed down to this
EXPANSIONS = 512  # beginnings that are followed at most
DEPTH = 32  # tokens of a word that are followed at most
TOGETHER = 16  # beginnings followed at once
STATE_BYTES = 256 << 20  # of their states
READ_TOKENS = 1024  # of a prompt, read at once

WORD = re.compile(r"\s*(?:(?:\w|(?<=\w)['’\-](?=\w))+|[^\w\s])")
JOINERS = "'’-"


class NextWord(NamedTuple):
    """A word that may come next, with the white space before it.

    `kind`: "word"; "token" where it may be a part of a word only, or stands for what the vocabulary lacks; "end": of the text.
    """

    text: str
    probability: float
    kind: Literal["word", "token", "end"] = "word"


def next_tokens(
    model: LanguageModel, tokenizer: Tokenizer, prompt: Sequence[int], top: int, device: Any
) -> list[NextWord]:
    """The `top` most probable next tokens."""
    probabilities = _Reader(model, prompt, device).root()
    vocabulary = _Vocabulary(tokenizer)
    return vocabulary.rows(probabilities, list(prompt), top)


def next_words(
    model: LanguageModel, tokenizer: Tokenizer, prompt: Sequence[int], top: int, device: Any
) -> list[NextWord]:
    """The `top` most probable next words, best first."""
    if not 1 <= top <= MOST_ROWS:
        raise ConfigError("top", f"{top} rows are not from 1 to {MOST_ROWS}", "Ask for fewer")
    vocabulary = _Vocabulary(tokenizer)
    if vocabulary.whole_words:
        rows = next_tokens(model, tokenizer, prompt, top, device)
        return [row if row.kind == "end" or row.text == SPECIALS[UNK] else row._replace(kind="word") for row in rows]
    reader = _Reader(model, prompt, device)
    search = _BestFirst(vocabulary, list(prompt), top)
    search.expand((), "", 1.0, reader.root())
    for _ in range(0, EXPANSIONS, reader.together):
        nodes = search.pick(reader.together, reader.depth)
        if not nodes:
            break
        for node, probabilities in reader.after(nodes):
            search.expand(node.path, node.text, node.probability, probabilities)
    return search.rows()


class _Node(NamedTuple):
    """A beginning of a word."""

    rank: tuple[float, int]  # the most probable first, of equals the first found
    path: tuple[int, ...]
    text: str

    @property
    def probability(self) -> float:
        return -self.rank[0]


class _Vocabulary:
    """What the tokens are as text behind other text."""

    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        plain = [i for i in range(tokenizer.size) if i > UNK]
        anchor = next(
            (i for i, text in zip(plain, tokenizer.decode([[i] for i in plain]), strict=True) if text.isalnum()), None
        )
        before = [] if anchor is None else [anchor]
        texts = dict(zip(plain, self.texts(before, [[i] for i in plain]), strict=True))
        # Tokens that end any word before them, whatever follows.
        self.ends = np.zeros(tokenizer.size, dtype=bool)
        self.ends[[EOS, UNK]] = True
        for i, text in texts.items():
            self.ends[i] = bool(text) and not (text[0] in JOINERS or text[0] == UNDECIDED or re.match(r"\w", text))
        self.whole_words = bool(texts) and all(
            text.startswith(" ") and len(text.split()) == 1 for text in texts.values()
        )

    def tail(self, prompt: Sequence[int]) -> list[int]:
        """The end of a prompt behind which tokens are decoded: short, so that many can be, but not without text."""
        for length in (8, 64, len(prompt)):
            end = list(prompt[max(0, len(prompt) - length) :])
            if self.tokenizer.decode([end])[0].strip():
                return end
        return list(prompt)

    def texts(self, before: Sequence[int], paths: Sequence[Sequence[int]]) -> list[str]:
        """What each path adds to the text before."""
        first, *both = self.tokenizer.decode([list(before), *([*before, *path] for path in paths)])
        return [text[len(first) :] if text.startswith(first) else text for text in both]

    def rows(self, probabilities: np.ndarray, prompt: Sequence[int], top: int) -> list[NextWord]:
        order = np.argsort(-probabilities, kind="stable")
        order = [int(i) for i in order if i not in (PAD, BOS)][:top]
        rows = []
        for i, text in zip(order, self.texts(self.tail(prompt), [[i] for i in order]), strict=True):
            if i in (EOS, UNK):
                rows.append(NextWord(SPECIALS[i], float(probabilities[i]), "end" if i == EOS else "token"))
            else:  # a part of a character has no text of its own
                shown = self.tokenizer.pieces([i])[0] if not text or UNDECIDED in text else text
                rows.append(NextWord(shown, float(probabilities[i]), "token"))
        return rows


class _BestFirst:
    """Beginnings of words yet to be followed, and words with the probability found so far."""

    def __init__(self, vocabulary: _Vocabulary, prompt: list[int], top: int):
        self._vocabulary, self._prompt, self._top = vocabulary, vocabulary.tail(prompt), top
        self._before = vocabulary.tokenizer.decode([self._prompt])[0][-1:]
        self._open: list[_Node] = []
        self._left: list[_Node] = []  # too long to be followed
        self._found: dict[str, float] = {}
        self._count = itertools.count()

    def expand(self, path: tuple[int, ...], text: str, probability: float, next_token: np.ndarray) -> None:
        """Takes up how the model goes on after a beginning."""
        mass = probability * next_token
        follow = mass >= FLOOR
        follow[[PAD, BOS, EOS, UNK]] = False
        if text.strip() and not text.endswith(UNDECIDED):
            ends = self._vocabulary.ends
            self._add(self._first_word(text + " ")[0], float(mass[ends].sum()))
            follow &= ~ends
        elif text.endswith(UNDECIDED):
            self._add(text.rstrip(UNDECIDED) or text, float(mass[[EOS, UNK]].sum()))
        else:
            self._add(END, float(mass[EOS]))
            self._add(SPECIALS[UNK], float(mass[UNK]))
        tokens = np.flatnonzero(follow).tolist()
        longer = [(*path, token) for token in tokens]
        for new, written, p in zip(
            longer, self._vocabulary.texts(self._prompt, longer), mass[tokens].tolist(), strict=True
        ):
            word, whole = self._first_word(written)
            if whole:
                self._add(word, p)
            else:
                heapq.heappush(self._open, _Node((-p, next(self._count)), new, written))

    def _first_word(self, text: str) -> tuple[str, bool]:
        """The first word of what follows the prompt, and whether more text can no longer change it."""
        sure = text.rstrip(UNDECIDED)
        found = WORD.match(self._before + sure, len(self._before))
        if found is None:
            return text, False
        word, rest = found[0], (self._before + sure)[found.end() :]
        if not re.match(r"\w", word[-1]) and not (word in JOINERS and not rest):
            return word, True  # a word of one character that is no letter
        return word, bool(rest) and rest not in JOINERS

    def _add(self, word: str, probability: float) -> None:
        if probability > 0:
            self._found[word] = self._found.get(word, 0.0) + probability

    def pick(self, most: int, depth: int) -> list[_Node]:
        """The beginnings to follow next: any that may become a word to show, or add to one. None are left when all is known."""
        shown = heapq.nlargest(self._top, self._found.items(), key=lambda item: item[1])
        least = shown[-1][1] if len(shown) == self._top else 0.0
        picked = []
        while self._open and len(picked) < most and self._open[0].probability > least:
            node = heapq.heappop(self._open)
            (picked if len(node.path) <= depth else self._left).append(node)
        if picked:
            return picked
        words = [word for word, _ in shown]
        for node in self._open:  # white space may still lead to any word, and to the end
            if node.probability < SMALL or len(node.path) > depth:
                continue
            if not node.text.strip() or any(word.startswith(node.text) for word in words):
                picked.append(node)
                if len(picked) == most:
                    break
        if picked:
            chosen = {node.rank for node in picked}
            self._open = [node for node in self._open if node.rank not in chosen]
            heapq.heapify(self._open)
        return picked

    def rows(self) -> list[NextWord]:
        kinds: dict[str, Literal["end", "token"]] = {END: "end", SPECIALS[UNK]: "token"}
        rows = [NextWord(word, p, kinds.get(word, "word")) for word, p in self._found.items()]
        begun = heapq.nsmallest(self._top, [*self._open, *self._left])
        rows += [NextWord(node.text, node.probability, "token") for node in begun]
        return sorted(rows, key=lambda row: -row.probability)[: self._top]


class _Reader:
    """The model after the prompt, and after the prompt and some tokens more."""

    def __init__(self, model: LanguageModel, prompt: Sequence[int], device: Any):
        limit = model.limits.target
        if limit is not None and len(prompt) + 1 > limit:
            what = f"it has {len(prompt)} tokens, and the model reads at most {limit - 1}"
            raise ModelError("prompt", what, f"Shorten it, for instance to its last {limit - 1} tokens")
        if model.training:
            raise ModelError("next words", "the model is in training mode, with dropout on", "Call model.eval() first")
        self._model, self._device = model, device
        self.depth = DEPTH if limit is None else min(DEPTH, limit - 1 - len(prompt))
        tokens = torch.tensor([[[BOS, *prompt]]], device=device)
        with torch.inference_mode():
            self._memory, self._state = model.start(no_source(1, device), capacity=tokens.shape[-1] + self.depth)
            hidden = None
            for part in tokens.split(READ_TOKENS, -1):
                hidden, self._state = model.advance(part, self._memory, self._state)
            assert hidden is not None
            self._root = self._probabilities(hidden[0, :, -1])[0]
        sizes: list[int] = []
        self._state.map(lambda tensor: sizes.append(tensor.numel() * tensor.element_size()) or tensor)
        self.together = max(1, min(TOGETHER, STATE_BYTES // max(1, sum(sizes))))

    def root(self) -> np.ndarray:
        """The probabilities of the token after the prompt."""
        return self._root

    def after(self, nodes: Sequence[_Node]) -> Iterator[tuple[_Node, np.ndarray]]:
        """Those of the token after each beginning."""
        ordered = sorted(nodes, key=lambda node: len(node.path))
        for _, same in itertools.groupby(ordered, key=lambda node: len(node.path)):
            group = list(same)
            with torch.inference_mode():
                rows = torch.zeros(len(group), dtype=torch.long, device=self._device)
                memory, state = self._memory.take(rows), self._state.take(rows)
                paths = torch.tensor([node.path for node in group], device=self._device)
                hidden, _ = self._model.advance(paths[:, None], memory, state)
                found = self._probabilities(hidden[:, 0, -1])
            yield from zip(group, found, strict=True)

    def _probabilities(self, hidden: torch.Tensor) -> np.ndarray:
        found = self._model.output.scores(hidden).double().exp().cpu().numpy()
        if np.isnan(found).any():
            raise ModelError("next words", "the model's scores are not numbers", "Check how it was trained")
        return found
