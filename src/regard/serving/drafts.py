"""A text that is being written, as characters: what is certain of it, and where a stop text ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from regard.core.specials import EOS
from regard.serving.completions import Finish, Piece, TokenFacts, Wishes
from regard.tasks.text_pieces import Pieces

if TYPE_CHECKING:
    from regard.data.tokenizers import Tokenizer

END = "</s>"


class Draft:
    """One text of a request: what its tokens say, and where it ends."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], wishes: Wishes, index: int):
        self.index, self.wishes, self._tokenizer = index, wishes, tokenizer
        self._pieces = Pieces(tokenizer, prompt)
        self.text = ""  # all that was decoded
        self.given = 0  # characters of it that were given out
        self.finish: Finish | None = None
        self.tokens: list[TokenFacts] = []
        self.offset = 0  # characters of an echoed prompt
        self.count, self.log_prob = 0, 0.0
        self._shown = 0  # facts that were given out
        self._longest = max(map(len, wishes.stop), default=1) - 1

    def add(self, token: int, log_prob: float, top: tuple[tuple[int, float], ...], before: Sequence[int]) -> None:
        """One more token (EOS: it ended by itself)."""
        self.log_prob += log_prob
        if token == EOS:
            return self.end("stop")
        self.count += 1
        old, more = len(self.text), self._pieces.add(token)
        self.text += more
        if self.wishes.logprobs is not None:
            shown = tuple((self.show(before, one), own) for one, own in top)
            self.tokens.append(TokenFacts(more, log_prob, shown, self.offset + old))
        self._look_for_stop(old)
        if self.finish is None and self.count >= self.wishes.max_tokens:
            self.end("length")

    def end(self, finish: Finish) -> None:
        old, self.finish = len(self.text), finish
        self.text += self._pieces.end()
        self._look_for_stop(old)

    def show(self, before: Sequence[int], token: int) -> str:
        """What a token would add to a text."""
        if token == EOS:
            return END
        first, both = self._tokenizer.decode([list(before[-4:]), [*before[-4:], token]])
        return both[len(first) :] if both.startswith(first) else self._tokenizer.decode([[token]])[0]

    def _look_for_stop(self, old: int) -> None:
        """Cuts the text before the first stop text that the newest characters complete."""
        if not self.wishes.stop:
            return
        found = [
            place for stop in self.wishes.stop if (place := self.text.find(stop, max(0, old - self._longest))) >= 0
        ]
        if found:
            self.text, self.finish = self.text[: min(found)], "stop"
            self.tokens = [facts for facts in self.tokens if facts.offset - self.offset < len(self.text)]

    def piece(self, prompt_tokens: int) -> Piece | None:
        """What is new and certain: not what may be the beginning of a stop text. None: nothing."""
        sure = len(self.text)
        if self.finish is None:
            sure -= max((_overlap(self.text, stop) for stop in self.wishes.stop), default=0)
        sure = max(sure, self.given)
        text, self.given = self.text[self.given : sure], sure
        end = self._shown
        while end < len(self.tokens) and (self.finish or self.tokens[end].offset - self.offset < sure):
            end += 1
        facts, self._shown = tuple(self.tokens[self._shown : end]), max(self._shown, end)
        if not text and not facts and self.finish is None:
            return None
        return Piece(self.index, text, facts, self.finish, prompt_tokens, self.count)


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text are the beginning of a stop text."""
    return next((n for n in range(min(len(stop) - 1, len(text)), 0, -1) if text.endswith(stop[:n])), 0)
