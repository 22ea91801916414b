"""CTranslate2's side of a parity certificate: its folder opened by itself, with the tokenizer that lies beside it."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers as hf

from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, SPECIALS
from regard.exchange.export_plan import batches_of
from regard.exchange.parity import Side
from regard.exchange.parity_sides import PROMPT, WRITTEN, written_after

BATCH = 8
NEVER = [[SPECIALS[PAD]], [SPECIALS[BOS]]]


def read_tokenizer(path: Path) -> hf.Tokenizer:
    """A tokenizer as others open it. Text that looks like a special token is text."""
    tokenizer = hf.Tokenizer.from_file(str(path))
    tokenizer.encode_special_tokens = True
    return tokenizer


def translator_side(
    place: Path, tokens: Sequence[Sequence[str]], search: SearchConfig, longest: int, joint: bool
) -> Side:
    import ctranslate2

    translator = ctranslate2.Translator(str(place), device="cpu", intra_threads=1)
    names = ("tokenizer.json",) * 2 if joint else ("tokenizer.src.json", "tokenizer.tgt.json")
    source, target = (read_tokenizer(place / name) for name in names)

    def scores(cases: Sequence[tuple[list[int], list[int]]]) -> Iterator[np.ndarray]:
        for some in batches_of(cases, BATCH):
            read = [[*(tokens[0][i] for i in row), SPECIALS[EOS]] for row, _ in some]
            written = [[tokens[1][i] for i in row] for _, row in some]
            for result in translator.score_batch(read, written, max_input_length=0):
                yield np.asarray(result.log_probs)

    def outputs(texts: Sequence[str]) -> list[str]:
        found = []
        for some in batches_of(texts, BATCH):
            read = [[*source.encode(text, add_special_tokens=False).tokens, SPECIALS[EOS]] for text in some]
            limit = max(search.length_limit(len(row) - 1, longest) for row in read)
            results = translator.translate_batch(
                read,
                beam_size=search.beam,
                length_penalty=search.alpha,
                max_decoding_length=limit + 1,
                min_decoding_length=0,
                max_input_length=0,
                disable_unk=search.ban_unknown,
                suppress_sequences=NEVER,
            )
            for result in results:
                ids = [target.token_to_id(token) for token in result.hypotheses[0]]
                found.append(target.decode([i for i in ids if i is not None]))
        return found

    return Side(name="ctranslate2", scores=scores, outputs=outputs)


def generator_side(place: Path, tokens: Sequence[str], context: int) -> Side:
    import ctranslate2

    generator = ctranslate2.Generator(str(place), device="cpu", intra_threads=1)
    tokenizer = read_tokenizer(place / "tokenizer.json")

    def scores(cases: Sequence[list[int]]) -> Iterator[np.ndarray]:
        for some in batches_of(cases, BATCH):
            logits = np.asarray(generator.forward_batch([[tokens[i] for i in [BOS, *row]] for row in some]))
            for row, found in zip(some, logits, strict=True):
                yield log_softmax(found[: len(row) + 1])

    def outputs(texts: Sequence[str]) -> list[str]:
        most = max(1, min(PROMPT, context - 1 - WRITTEN))
        prompts = [tokenizer.encode(text, add_special_tokens=False).tokens[:most] for text in texts]
        found = []
        for prompt in prompts:  # in a batch all stop at the length of the longest
            (result,) = generator.generate_batch(
                [[SPECIALS[BOS], *prompt]],
                max_length=written_after(context),
                min_length=0,
                sampling_topk=1,
                include_prompt_in_result=False,
                disable_unk=True,
                suppress_sequences=NEVER,
            )
            found.append(tokenizer.decode([i for i in result.sequences_ids[0] if i != EOS], skip_special_tokens=False))
        return found

    return Side(name="ctranslate2", scores=scores, outputs=outputs)


def encoder_side(place: Path, segments: int) -> Side:
    import ctranslate2

    encoder = ctranslate2.Encoder(str(place), device="cpu", intra_threads=1)
    return Side(name="ctranslate2", scores=functools.partial(_states, encoder, segments))


def _states(encoder: Any, segments: int, cases: Sequence[list[int]]) -> Iterator[np.ndarray]:
    for some in batches_of(cases, BATCH):
        rows = [[BOS, *row, EOS] for row in some]
        output = encoder.forward_batch(rows, token_type_ids=[segments_of(row, segments) for row in rows])
        for row, found in zip(rows, np.asarray(output.last_hidden_state), strict=True):
            yield found[: len(row)]


def segments_of(row: Sequence[int], segments: int) -> list[int]:
    """Which text each token of [CLS] a [SEP] b [SEP] belongs to."""
    found, ended = [], 0
    for token in row:
        found.append(min(ended, segments - 1))
        ended += token == EOS
    return found


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted.astype(np.float64)).sum(-1, keepdims=True))
