"""One part of `prepare.py`, as a process of its own: a text into token ids in files, by regard or as others do it.

    python benchmarks/prepare_peer.py WHAT WHO FOLDER SRC TGT PIECES

WHAT is `vocabulary` (learn pieces from all lines of both sides, into FOLDER) or `pack` (tokenise and write, with the pieces that
FOLDER has). WHO is `regard` or `sentencepiece`. The latter goes as the preparation of fairseq and OpenNMT-py does: line by line,
each encoded by sentencepiece (BPE), its ids appended to a binary file, and its length to an index.
"""

from __future__ import annotations

import itertools
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path


def lines(*paths: Path) -> Iterator[str]:
    for path in paths:
        with open(path, encoding="utf-8", newline="\n") as file:
            for line in file:
                yield line.rstrip("\n")


def regard_vocabulary(folder: Path, src: Path, tgt: Path, pieces: int) -> None:
    from regard.data.tokenizers import Tokenizer, TokenizerConfig

    made = Tokenizer.train([*lines(src, tgt)], TokenizerConfig(size=pieces))
    (folder / "tokenizer.json").write_text(made.to_json(), encoding="utf-8")


def regard_pack(folder: Path, src: Path, tgt: Path, pieces: int) -> None:
    from regard.data.prepared import Shelf
    from regard.data.reading import open_pairs
    from regard.data.split import gathered
    from regard.data.store import TokenStore
    from regard.data.tokenizers import Tokenizer, TokenizerPair

    made = Tokenizer.from_json((folder / "tokenizer.json").read_text(encoding="utf-8"))
    pairs = gathered(open_pairs([src, tgt], "text").chunks())
    TokenStore.on_shelf(Shelf(folder / "shelf", "text"), pairs, TokenizerPair(made, made, True))


def sentencepiece_vocabulary(folder: Path, src: Path, tgt: Path, pieces: int) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines(src, tgt),
        model_prefix=str(folder / "pieces"),
        vocab_size=pieces,
        model_type="bpe",
        minloglevel=2,
    )


def sentencepiece_pack(folder: Path, src: Path, tgt: Path, pieces: int) -> None:
    import sentencepiece

    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "pieces.model"))
    for side, path in (("source", src), ("target", tgt)):
        lengths = array("q")
        with open(folder / f"{side}.bin", "wb") as file:
            for line in lines(path):
                ids = array("i", model.encode(line))
                ids.tofile(file)
                lengths.append(len(ids))
        with open(folder / f"{side}.idx", "wb") as file:
            array("q", itertools.accumulate(lengths)).tofile(file)


def main() -> None:
    what, who, folder, src, tgt, pieces = sys.argv[1:]
    function = globals()[f"{who}_{what}"]
    function(Path(folder), Path(src), Path(tgt), int(pieces))


if __name__ == "__main__":
    main()
