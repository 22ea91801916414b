"""transformers' side of a parity certificate: the folder opened by its Auto classes, from the files alone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.core.search_config import SearchConfig
from regard.core.types import BOS, EOS, PAD, SPECIALS, pad_rows
from regard.exchange.ctranslate2_sides import segments_of
from regard.exchange.export_plan import batches_of
from regard.exchange.huggingface_marian_export import POSITIONS, TARGET_TOKENIZER
from regard.exchange.parity import Side
from regard.exchange.parity_questions import cases_of
from regard.exchange.parity_sides import PROMPT, WRITTEN, written_after

BATCH = 8
OPENS = {
    "BertModel": "AutoModel",
    "BertForMaskedLM": "AutoModelForMaskedLM",
    "BertForPreTraining": "AutoModelForPreTraining",
    "BertForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "GPT2LMHeadModel": "AutoModelForCausalLM",
    "MarianMTModel": "AutoModelForSeq2SeqLM",
    "PegasusForConditionalGeneration": "AutoModelForSeq2SeqLM",
}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """transformers draws bars while it reads weights, and logs advice; neither is for users of regard."""
    from transformers.utils import logging

    bars, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


def open_folder(place: Path, architecture: str) -> Any:
    """The model of a folder as the Auto class opens it, in float32 on the CPU."""
    import transformers

    with _quiet():
        kind = getattr(transformers, OPENS[architecture])
        return kind.from_pretrained(str(place), local_files_only=True, dtype=torch.float32).eval()


def open_tokenizer(place: Path) -> Any:
    import transformers

    with _quiet():
        return transformers.AutoTokenizer.from_pretrained(str(place), local_files_only=True)


def translator_side(place: Path, architecture: str, search: SearchConfig) -> Side:
    model, source = open_folder(place, architecture), open_tokenizer(place)
    target = open_tokenizer(place / TARGET_TOKENIZER) if (place / TARGET_TOKENIZER).is_dir() else source

    @torch.inference_mode()
    def scores(cases: Sequence[tuple[list[int], list[int]]]) -> list[np.ndarray]:
        found = []
        for some in batches_of(cases, BATCH):
            read, written = pad_rows([[*s, EOS] for s, _ in some]), pad_rows([[BOS, *t] for _, t in some])
            logits = model(
                input_ids=read.tokens, attention_mask=read.keep.long(), decoder_input_ids=written.tokens
            ).logits.log_softmax(-1)
            found += [row[: len(t) + 1].numpy() for row, (_, t) in zip(logits, some, strict=True)]
        return found

    @torch.inference_mode()
    def outputs(texts: Sequence[str]) -> list[str]:
        found = []
        for some in batches_of(texts, BATCH):
            read = source(list(some), return_tensors="pt", padding=True)
            longest = int(read["attention_mask"].sum(1).max()) - 1
            limit = search.length_limit(longest, POSITIONS)
            with _quiet():
                written = model.generate(**read, max_new_tokens=limit + 1, max_length=None)
            found += target.batch_decode(written, skip_special_tokens=True)
        return found

    return Side(name="transformers", scores=scores, outputs=outputs)


def gpt2_side(place: Path, context: int, foreign: bool) -> Side:
    """`foreign`: the vocabulary is GPT-2's own, with <|endoftext|> last; columns come in the order of `gpt2_columns`."""
    model, tokenizer = open_folder(place, "GPT2LMHeadModel"), open_tokenizer(place)
    begin = model.config.vocab_size - 1 if foreign else BOS

    @torch.inference_mode()
    def scores(cases: Sequence[list[int]]) -> list[np.ndarray]:
        move = len(SPECIALS) if foreign else 0
        rows = [torch.tensor([[begin, *(i - move for i in row)]]) for row in cases]
        return [model(row).logits[0].log_softmax(-1).numpy() for row in rows]

    @torch.inference_mode()
    def outputs(texts: Sequence[str]) -> list[str]:
        most = max(1, min(PROMPT, context - 1 - WRITTEN))
        found = []
        for text in texts:
            prompt = tokenizer(text, add_special_tokens=False)["input_ids"][:most]
            row = torch.tensor([[begin, *prompt]])
            with _quiet():
                written = model.generate(
                    row,
                    attention_mask=torch.ones_like(row),
                    do_sample=False,
                    max_new_tokens=written_after(context),
                    max_length=None,
                    pad_token_id=begin if foreign else PAD,
                )
            found.append(tokenizer.decode(written[0, row.shape[1] :], skip_special_tokens=True))
        return found

    return Side(name="transformers", scores=scores, outputs=outputs)


def gpt2_columns(scores: np.ndarray) -> np.ndarray:
    """regard's columns of a silent model in GPT-2's order: what is never written is left out, EOS comes last."""
    return np.concatenate((scores[:, len(SPECIALS) :], scores[:, EOS : EOS + 1]), axis=1)


def bert_side(place: Path, architecture: str, segments: int, labels: Sequence[str], task: Any) -> Side:
    """Of a masked model the words at every place, or states without a head; of others the labels."""
    model, tokenizer = open_folder(place, architecture), open_tokenizer(place)
    headless = architecture in ("BertModel", "BertForNextSentencePrediction")
    asked = model if architecture == "BertModel" or not headless else model.bert

    @torch.inference_mode()
    def ask(row: Sequence[int]) -> torch.Tensor:
        """What the model gives for [CLS] row [SEP]."""
        whole = [BOS, *row, EOS]
        answer = asked(input_ids=torch.tensor([whole]), token_type_ids=torch.tensor([segments_of(whole, segments)]))
        if headless:
            return answer.last_hidden_state[0]
        return (answer.prediction_logits if architecture == "BertForPreTraining" else answer.logits)[0]

    def scores(cases: Sequence[Any]) -> Iterator[np.ndarray]:
        for case in cases:
            if architecture == "BertForTokenClassification":
                tokens, places = case
                yield ask(tokens)[1:-1][places].log_softmax(-1).numpy()
            elif architecture == "BertForSequenceClassification":
                yield ask(case).log_softmax(-1).numpy()
            else:
                yield ask(case).numpy() if headless else ask(case)[1:-1].log_softmax(-1).numpy()

    def classified(texts: Sequence[str]) -> list[str]:
        second = [*texts[1:], texts[0]] if task.two_texts else [None] * len(texts)
        found = []
        for one, other in zip(texts, second, strict=True):
            read = tokenizer(one, other, return_tensors="pt") if other else tokenizer(one, return_tensors="pt")
            with torch.inference_mode():
                found.append(labels[int(model(**read).logits[0].argmax())])
        return found

    def filled(texts: Sequence[str]) -> list[list[int]]:
        rows = [tokenizer(text)["input_ids"][1:-1] for text in texts]
        return [ask(row)[1:-1].argmax(-1).tolist() for row in rows]

    if architecture == "BertForSequenceClassification":
        return Side(name="transformers", scores=scores, outputs=classified)
    if architecture == "BertForTokenClassification":

        def tagged(texts: Sequence[str]) -> list[list[str]]:
            best = [ask(tokens)[1:-1][places].argmax(-1) for tokens, places in cases_of(task, texts)]
            return [[labels[int(i)] for i in row] for row in best]

        return Side(name="transformers", scores=scores, outputs=tagged)
    return Side(name="transformers", scores=scores, outputs=None if headless else filled)
