"""One word in two sentences, layer by layer: the vectors are those of the model's own layers."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from regard.core.errors import ModelError
from regard.core.types import EOS, pad_rows
from regard.data.tokenizers import TokenizerConfig, TokenizerPair
from regard.looking.contexts import LayersRead
from regard.looking.words import in_context
from regard.models.base import MODELS, build_model
from regard.search.config import SearchConfig
from regard.tasks.translation import Translator

TEXT = ["the animal is tired", "the street is wide", "it was too tired"] * 2
FIRST, SECOND = "the animal is tired", "it was too tired"
SIZES = {
    "transformer": {"width": 16, "layers": 2, "heads": 2},
    "universal": {"width": 16, "heads": 2, "steps": 3},
    "bahdanau": {"embedding": 8, "width": 8},
    "convs2s": {"embedding": 8, "width": 8, "layers": 2},
}


@pytest.fixture(scope="module")
def tokenizers():
    return TokenizerPair.train(TEXT, TEXT, TokenizerConfig(kind="bpe", size=60))


def translator(name: str, tokenizers, **more) -> Translator:
    torch.manual_seed(0)
    config = MODELS.get(name).Config(name=name, **{**SIZES[name], **more})
    size = tokenizers.source.size
    model = build_model(name, config, source_vocabulary=size, target_vocabulary=size, shared=True)
    return Translator(model.eval(), tokenizers, SearchConfig(beam=1))


def cosine(a, b) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


@pytest.mark.parametrize("norm", ["pre", "post"])
def test_the_vectors_are_what_each_layer_gives(norm, tokenizers):
    task = translator("transformer", tokenizers, norm=norm)
    model, ends = task.model, []
    for text in (FIRST, SECOND):
        (ids,) = tokenizers.source.encode([text])
        source = pad_rows([[*ids, EOS]])
        with torch.inference_mode():
            at = torch.arange(len(ids) + 1)
            x = model._embed(source.tokens, "source", at, len(at), source.keep)
            states = [x]
            for layer in model.encoder:
                x, _ = layer(x, None, False)
                states.append(x)
        begin = len(tokenizers.source.encode([text.removesuffix(" tired")])[0])  # the word is the last one
        ends.append([state[0, begin:-1].mean(0).double().numpy() for state in states])
    found = in_context(task, "tired", [FIRST, SECOND])
    assert found["layers"] == ["input", "layer 1", "layer 2"]
    np.testing.assert_allclose(found["cosines"], [cosine(a, b) for a, b in zip(*ends, strict=True)], atol=1e-5)


@pytest.mark.parametrize("name", SIZES)
def test_the_same_sentence_gives_the_same_vectors_and_another_one_others(name, tokenizers):
    task = translator(name, tokenizers)
    np.testing.assert_allclose(in_context(task, "tired", [FIRST, FIRST])["cosines"], 1, atol=1e-6)
    assert min(in_context(task, "tired", [FIRST, SECOND])["cosines"]) < 0.999


def test_the_last_state_of_a_universal_encoder_is_what_the_decoder_reads(tokenizers):
    task = translator("universal", tokenizers, norm="post")
    _, states = LayersRead(task).layers(FIRST)
    (ids,) = tokenizers.source.encode([FIRST])
    with torch.inference_mode():
        key, _ = task.model.decoder.cross.project_memory(torch.from_numpy(states[-1])[None])
        own = task.model.start(pad_rows([[*ids, EOS]]))[0].key
    np.testing.assert_allclose(key.numpy(), own.numpy(), atol=1e-5)


def test_the_last_state_of_convolutions_is_what_the_decoder_looks_at(tokenizers):
    task = translator("convs2s", tokenizers)
    _, states = LayersRead(task).layers(FIRST)
    (ids,) = tokenizers.source.encode([FIRST])
    with torch.inference_mode():
        own = task.model.start(pad_rows([[*ids, EOS]]))[0].z
        found = task.model.encoder_out(torch.from_numpy(states[-1])[None])
    np.testing.assert_allclose(found.numpy(), own.numpy(), atol=1e-5)


def test_where_words_have_one_vector_it_is_said():
    with pytest.raises(ModelError, match="the same vector in every sentence"):
        LayersRead(object()).layers("a b")
