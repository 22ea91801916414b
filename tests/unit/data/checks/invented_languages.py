"""Parallel text in two invented languages: lexicons of made-up words, names, numbers, marks, and noise in the lengths."""

from __future__ import annotations

import itertools
import random

from regard.data.split import Pairs

_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeio"]
_OTHER_SYLLABLES = [
    begin + end for begin in ("zh", "v", "dr", "st", "pf", "w", "qu", "j") for end in ("ul", "ey", "in", "orn")
]
_SIGNS = "あいうえおかきくけこさしすせそたちつてとなにぬねのはひふへほまみむめもやゆよらりるれろわを"
_IDEOGRAPHS = [chr(code) for code in range(0x4E00, 0x4E00 + 600)]
_ENDS = [(".", "."), (".", "."), (".", "."), ("?", "?"), ("!", "!"), (":", ":")]
_WIDE_ENDS = {".": "。", "?": "？", "!": "！", ":": "："}


class Languages:
    """Two languages whose words correspond, the second with spaces or without.

    With `repeated=False` hardly any word is used twice, so that a lexicon cannot be learned.
    """

    def __init__(self, seed: int, spaces: bool = True, repeated: bool = True):
        self.random = random.Random(seed)
        self.spaces = spaces
        words = 1_500 if repeated else 40_000
        self.ours = self._words(_SYLLABLES, words)
        if spaces:
            self.theirs = self._words(_OTHER_SYLLABLES, words)
        else:
            signs = [*_SIGNS, *_IDEOGRAPHS]
            self.theirs = ["".join(self.random.choices(signs, k=self.random.randint(1, 3))) for _ in range(words)]
        self.names = [name.capitalize() for name in self._words(_SYLLABLES, 80)]
        self.cumulated = list(itertools.accumulate(1 / (rank + 5) if repeated else 1.0 for rank in range(words)))

    def _words(self, syllables: list[str], count: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < count:
            found["".join(self.random.choices(syllables, k=self.random.randint(1, 4)))] = None
        return list(found)

    def pair(self) -> tuple[str, str]:
        """A sentence and its translation: other word order, now and then a word more or less."""
        chance = self.random.random
        meaning = self.random.choices(range(len(self.ours)), cum_weights=self.cumulated, k=self.random.randint(3, 18))
        ours = [self.ours[i] for i in meaning]
        theirs = [
            self.theirs[i if chance() > 0.1 else self.random.randrange(len(self.theirs))]
            for i in meaning
            if chance() > 0.1
        ]
        for _ in range(self.random.choice((0, 0, 1))):
            theirs.insert(self.random.randint(0, len(theirs)), self.random.choice(self.theirs[:50]))
        places = [place + self.random.uniform(0, 3) for place in range(len(theirs))]
        theirs = [word for _, word in sorted(zip(places, theirs, strict=True))]
        if chance() < 0.2:
            name = self.random.choice(self.names)
            ours.insert(0, name)
            theirs.insert(0, name if self.spaces else self.theirs[self.names.index(name)] + "さん")
        if chance() < 0.1:
            number = str(self.random.randint(1, 2_000))
            ours.append(number)
            theirs.append(number if self.spaces else "".join(chr(ord(digit) + 0xFEE0) for digit in number))
        our_end, their_end = self.random.choice(_ENDS)
        if chance() < 0.05:
            their_end = "."
        if self.spaces:
            return " ".join(ours).capitalize() + our_end, " ".join(theirs).capitalize() + their_end
        return " ".join(ours).capitalize() + our_end, "".join(theirs) + _WIDE_ENDS[their_end]

    def pairs(self, count: int) -> Pairs:
        rows = [self.pair() for _ in range(count)]
        return Pairs([source for source, _ in rows], [target for _, target in rows])
