"""The OPUS-MT Chinese-English model, imported from CTranslate2's int8 files, against CTranslate2 itself on the same weights.

    python benchmarks/import_opus_mt.py FOLDER [--lines 1000] [--beam 6] [--pieces 20000]

FOLDER holds `model` (model.bin, shared_vocabulary.json, config.json), `sentencepiece.model`, a Tatoeba test set
(*.tsv.xz: language, language, English, Chinese) and optionally CTranslate2's int8 translations (*.hyp.en).

Compared are regard's Transformer and beam search in torch with CTranslate2 in float32: on the files as they came, and on the
float32 files that regard's own writer makes of the imported run. One thread. Asked for: BLEU within 0.1, and 97% of translations
identical. With the sentencepiece package installed, random strings (`--pieces`: how many) are cut by it and by regard's reader,
too. One JSON line per case.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
BLEU_WITHIN, IDENTICAL = 0.1, 0.97


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--beam", type=int, default=6)
    parser.add_argument("--pieces", type=int, default=20_000)
    given = parser.parse_args()
    import ctranslate2
    import torch

    import regard
    from regard.exchange.import_ctranslate2 import import_ctranslate2
    from regard.tasks.converted_run import ctranslate2_files
    from regard.tasks.run_files import open_run

    torch.set_num_threads(1)
    with lzma.open(next(given.folder.glob("*.tsv.xz")), "rt") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][: given.lines]
    sources, references = [row[3] for row in rows], [row[2] for row in rows]
    with tempfile.TemporaryDirectory() as place:
        began = time.perf_counter()
        run = import_ctranslate2(given.folder / "model", Path(place) / "run")
        say({"case": "import", "seconds": round(time.perf_counter() - began, 1)})
        translator = regard.load(run, "cpu", engine="torch")
        began = time.process_time()
        settings = dataclasses.replace(translator.search, beam=given.beam)
        ours = translator.translate(sources, search=settings)
        report("regard, torch", ours, ours, references, time.process_time() - began)
        source = translator.tokenizers.source
        pieces = [source.pieces(ids) for ids in source.encode(sources)]
        written = Path(place) / "float32"
        written.mkdir()
        for name, content in ctranslate2_files(open_run(run), "float32").items():
            (written / name).write_bytes(content)
        good = True
        for name, model, end in (
            ("CTranslate2 float32, files as they came", given.folder / "model", []),
            ("CTranslate2 float32, files by regard's writer", written, ["</s>"]),
        ):
            engine = ctranslate2.Translator(str(model), compute_type="float32", inter_threads=1, intra_threads=1)
            began = time.process_time()
            found = engine.translate_batch(
                [[*line, *end] for line in pieces], beam_size=given.beam, max_batch_size=1024, batch_type="tokens"
            )
            seconds = time.process_time() - began
            texts = ["".join(one.hypotheses[0]).replace("▁", " ").strip() for one in found]
            case = report(name, texts, ours, references, seconds)
            good = good and abs(case["bleu_difference"]) <= BLEU_WITHIN and case["identical"] >= IDENTICAL
            del engine
        kept = next(iter(given.folder.glob("*.hyp.en")), None)
        if kept is not None:
            texts = kept.read_text().split("\n")[: len(sources)]
            report("CTranslate2 int8, as kept in the folder", texts, ours, references, 0.0)
    good = cut_alike(given.folder / "sentencepiece.model", given.pieces) and good
    say({"case": "all", "good": good})
    return 0 if good else 1


def report(name: str, texts: list[str], ours: list[str], references: list[str], seconds: float) -> dict[str, Any]:
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU()
    score = metric.corpus_score(texts, [references]).score
    own = BLEU().corpus_score(ours, [references]).score
    row = {
        "case": name,
        "lines": len(texts),
        "bleu": round(score, 2),
        "bleu_difference": round(own - score, 3),
        "identical": round(sum(a == b for a, b in zip(texts, ours, strict=True)) / len(texts), 4),
        "processor_seconds": round(seconds, 1),
        "signature": str(metric.get_signature()),
    }
    say(row)
    return row


def cut_alike(path: Path, count: int) -> bool:
    """Whether the sentencepiece library and regard's reader cut random strings into the same pieces."""
    try:
        import sentencepiece
    except ImportError:
        say({"case": "pieces", "skipped": "the sentencepiece package is not installed"})
        return True
    from regard.core.specials import SPECIALS
    from regard.exchange.sentencepiece_model import piece_tokenizer, read_sentencepiece

    model = read_sentencepiece(path)
    tokenizer = piece_tokenizer(model, [piece for piece in model.usable if piece not in SPECIALS], path)
    library = sentencepiece.SentencePieceProcessor(str(path))
    texts = random_texts(model.usable, count)
    theirs = [[library.id_to_piece(i) for i in ids] for ids in library.encode(texts, out_type=int)]
    ours = [tokenizer.pieces(ids) for ids in tokenizer.encode(texts)]
    same = sum(a == b for a, b in zip(ours, theirs, strict=True))
    say({"case": "pieces", "strings": count, "identical": same})
    return same == count


def random_texts(pieces: list[str], count: int, seed: int = 1) -> list[str]:
    """Strings of a model's pieces, of characters of many scripts, of marks and white space, and of any code points."""
    draw = random.Random(seed)
    blocks = [(0x20, 0x7F), (0x4E00, 0xA000), (0x3040, 0x3100), (0x300, 0x370), (0x1100, 0x1200), (0xFF00, 0xFFEF)]
    blocks += [(0xC0, 0x250), (0x1F300, 0x1F6FF), (0x400, 0x500), (0x600, 0x700)]
    odd = [" ", "  ", "\t", "\n", "\u3000", "▁", "\xa0", "\u200b", "\0", "<s>", "</s>", "<unk>", "<0xE6>"]

    def part() -> str:
        kind = draw.random()
        if kind < 0.4:
            return draw.choice(pieces).replace("▁", " ")
        if kind < 0.5:
            return draw.choice(odd)
        if kind < 0.95:
            return "".join(chr(draw.randrange(*draw.choice(blocks))) for _ in range(draw.randint(1, 6)))
        return chr(draw.choice((draw.randrange(0xD800), draw.randrange(0xE000, 0x110000))))

    return ["".join(part() for _ in range(draw.randint(0, 12))) for _ in range(count)]


def say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


if __name__ == "__main__":
    sys.exit(main())
