"""Word vectors: what is near to a word, and what is to one word as two others are to each other."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from jaxtyping import Float, Int

from regard.core.errors import CheckpointError, DataError, ModelError
from regard.core.files import check_manifest, load_tensors
from regard.core.visible_text import visible
from regard.data.token_words import token_words
from regard.data.tokenizers import TokenizerPair
from regard.data.vectors import read_vectors, write_vectors
from regard.layers.word_tables import word_tables
from regard.tasks.folder import CONFIG, WEIGHTS, load_model, read_config, tokenizer_names, weights_folder

TABLE = "embedding.weight"
MOST_SPELLINGS = 200_000  # words that are looked through for near spellings
_WORD = re.compile(r"\w+(?:['’\-]\w+)*")


class Neighbour(NamedTuple):
    """A word and the cosine of its vector with what was asked for."""

    word: str
    similarity: float


class WordVectors:
    """Words and their vectors, by frequency where a run or word2vec wrote them. Upper and lower case are as trained.

    `counts` says how often each word occurs in the text, where that is known. Similarity is the cosine.
    """

    def __init__(
        self,
        words: Sequence[str],
        matrix: Float[np.ndarray, "N D"],
        counts: Int[np.ndarray, " N"] | None = None,
    ):
        matrix = np.ascontiguousarray(matrix, dtype=np.float32)
        if matrix.ndim != 2 or len(matrix) != len(words) or not matrix.size:
            what = f"{len(words)} words and a matrix of shape {list(matrix.shape)} do not fit together"
            raise DataError("word vectors", what, "Give one vector for each word, and some")
        if counts is not None and len(counts) != len(words):
            raise DataError("word vectors", f"{len(counts)} counts for {len(words)} words", "Give one for each")
        if not np.isfinite(matrix).all():
            raise DataError("word vectors", "a value is no finite number", "Mend the vectors")
        self.words = list(words)
        self.matrix, self.counts = matrix, counts
        self.places = {word: i for i, word in enumerate(self.words)}
        if len(self.places) < len(self.words):
            raise DataError("word vectors", "a word stands there twice", "Give each word one vector")
        self._unit: Float[np.ndarray, "N D"] | None = None
        self._folded: dict[str, list[int]] | None = None

    @classmethod
    def load(cls, path: Path | str) -> WordVectors:
        """Those of a run folder of any model with a table of words, or of a file in word2vec's formats."""
        path = Path(path)
        if path.is_dir():
            return cls(*_of_run(path))
        read = read_vectors(path)
        return cls(read.words, read.matrix)

    def save(self, path: Path | str, binary: bool = False) -> None:
        """Writes word2vec's text format, or its binary one."""
        write_vectors(path, self.words, self.matrix, binary)

    def __len__(self) -> int:
        return len(self.words)

    def __contains__(self, word: object) -> bool:
        return word in self.places

    @property
    def width(self) -> int:
        return self.matrix.shape[1]

    @property
    def unit(self) -> Float[np.ndarray, "N D"]:
        """The vectors with length 1; one that is 0 stays so."""
        if self._unit is None:
            norms = np.linalg.norm(self.matrix, axis=1, keepdims=True)
            self._unit = self.matrix / np.where(norms > 0, norms, 1)
        return self._unit

    @property
    def folded(self) -> dict[str, list[int]]:
        """The places of words by what they are in upper case, the most frequent first."""
        if self._folded is None:
            self._folded = {}
            for i, word in enumerate(self.words):
                self._folded.setdefault(word.upper(), []).append(i)
        return self._folded

    def place(self, word: str) -> int:
        """A word's number; an unknown word is an error that names near spellings."""
        if word not in self.places:
            near = self.near_spellings(word)
            todo = (
                f"Perhaps you mean {' or '.join(near)}" if near else "Ask for a word of the text that it was trained on"
            )
            raise DataError(
                f"word {visible(word, 60)!r}", f"it is none of the {len(self):,} words that have vectors", todo
            )
        return self.places[word]

    def near_spellings(self, word: str, top: int = 3) -> list[str]:
        """Known words that look like a word: in another case, or with a few other letters."""
        found = [self.words[i] for i in self.folded.get(word.upper(), [])[:top]]
        if 1 < len(word) <= 40 and not found:
            asked = word.lower()
            alike: dict[str, str] = {}
            for known in self.words[:MOST_SPELLINGS]:
                if abs(len(known) - len(word)) <= 2 and known[:1].lower() == asked[0]:
                    alike.setdefault(known.lower(), known)
            found = [alike[form] for form in difflib.get_close_matches(asked, alike, n=top, cutoff=0.75)]
        return found

    def vector(self, word: str) -> Float[np.ndarray, " D"]:
        return self.matrix[self.place(word)]

    def similarity(self, a: str, b: str) -> float:
        return float(self.unit[self.place(a)] @ self.unit[self.place(b)])

    def nearest(self, asked: str | Float[np.ndarray, " D"], top: int = 10) -> list[Neighbour]:
        """The words nearest to a word, which is left out, or to a vector."""
        if isinstance(asked, str):
            place = self.place(asked)
            return self._nearest(self.unit[place], top, {place})
        vector = np.asarray(asked, dtype=np.float32)
        if vector.shape != (self.width,):
            raise DataError("vector", f"its shape is {list(vector.shape)}", f"Give {self.width} numbers")
        norm = float(np.linalg.norm(vector))
        if not np.isfinite(norm) or norm == 0:
            raise DataError("vector", "it has no direction: all is 0, or a value is not finite", "Give another one")
        return self._nearest(vector / norm, top, set())

    def analogy(self, a: str, b: str, c: str, top: int = 5) -> list[Neighbour]:
        """What is to `c` as `b` is to `a`: the words nearest to b - a + c, of vectors with length 1, without these three."""
        places = [self.place(word) for word in (a, b, c)]
        of_a, of_b, of_c = self.unit[places]
        asked = of_b - of_a + of_c
        norm = float(np.linalg.norm(asked))
        return self._nearest(asked / norm if norm > 0 else asked, top, {*places})

    def mean(self, text: str) -> tuple[Float[np.ndarray, " D"], list[str]]:
        """The mean of the vectors of a text's words, and which words of it are unknown. None known: an error.

        A text that is one of the words is that word. Elsewhere words are letters and digits, with apostrophes and hyphens
        between them; one that is unknown as it stands is looked for in lower case.
        """
        if text in self.places:
            return self.matrix[self.places[text]], []
        found = _WORD.findall(text)
        if len(found) < 2:
            return self.vector(self._known(found[0]) or found[0] if found else text), []
        known = [self.places[word] for word in map(self._known, found) if word is not None]
        unknown = [word for word in found if self._known(word) is None]
        if not known:
            raise DataError(f"text {visible(text, 60)!r}", "none of its words has a vector", "Give another text")
        return self.matrix[known].mean(0), unknown

    def _known(self, word: str) -> str | None:
        return next((form for form in (word, word.lower()) if form in self.places), None)

    def _nearest(self, unit: Float[np.ndarray, " D"], top: int, without: set[int]) -> list[Neighbour]:
        if top < 1:
            raise DataError("top", f"it is {top}", "Give the number of words to show, 1 or more")
        scores = self.unit @ unit
        scores[list(without)] = -np.inf
        top = min(top, len(self) - len(without))
        order = np.argpartition(-scores, top - 1)[:top] if top < len(scores) else np.arange(len(scores))
        order = sorted((int(i) for i in order if int(i) not in without), key=lambda i: (-scores[i], i))
        return [Neighbour(self.words[i], float(scores[i])) for i in order[:top]]


def _of_run(folder: Path) -> tuple[list[str], Float[np.ndarray, "N D"]]:
    """The words of a run's tokenizer and their rows of its model's table; of a translator, those of the source."""
    config = read_config(folder)
    place = weights_folder(folder)
    check_manifest(place, [WEIGHTS])
    check_manifest(folder, [CONFIG, *tokenizer_names(folder)])
    tokenizers = TokenizerPair.load(folder)
    tensors = load_tensors(place / WEIGHTS) if config["model"].get("name") == "word2vec" else {}
    if TABLE in tensors:
        tokenizer, table = tokenizers.source, tensors[TABLE].float().numpy()
    else:
        model, _, _ = load_model(folder)
        sides = ((tokenizers.source, "source"), (tokenizers.target, "target"))
        found = [(one, word_tables(model, one.size, "" if tokenizers.joint else side)) for one, side in sides]
        tokenizer, tables = next(((one, tables) for one, tables in found if tables), (tokenizers.source, {}))
        if not tables:
            raise ModelError(folder, "its model has no table of words", "Give a run of word vectors, such as word2vec")
        table = next(iter(tables.values())).weight.detach().float().numpy()
    if table.ndim != 2 or len(table) != tokenizer.size:
        what = f"its table has shape {list(table.shape)}, and its tokenizer {tokenizer.size} words"
        raise CheckpointError(folder, what, "Put the run's own files back")
    first: dict[str, int] = {}
    for i, word in enumerate(token_words(tokenizer)):
        if word is not None and not any(map(str.isspace, word)):
            first.setdefault(word, i)
    if not first:
        raise ModelError(folder, "the tokens of its tokenizer are no words", "Give a run with tokenizer.kind=word")
    return list(first), np.ascontiguousarray(table[cast(list[int], list(first.values()))])
