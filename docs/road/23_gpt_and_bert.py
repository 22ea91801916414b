# %% [markdown]
# # GPT and BERT
#
# Cut the Transformer in two. The **decoder** alone, without a source, is **GPT**: every place sees what was before it, and guesses what
# comes next. The **encoder** alone is **BERT**: every place sees everything, so "what comes next" would be no question; instead some
# words are hidden, and it guesses those.
#
# ## Which positions see which
#
# Measured, not drawn from memory: change one word, and see at which places what is said changes.

# %%
import torch

from regard.core.types import Padded
from regard.evaluation.drawing import draw_matrix
from regard.models.base import MODELS, build_model

words = ["I", "went", "to", "the", "climbing", "gym"]
n = len(words)


def sees(name: str) -> torch.Tensor:
    """1 where what is said at a place (row) depends on the word at another (column)."""
    torch.manual_seed(0)
    config = MODELS.get(name).Config(
        width=32, layers=2, heads=4, dropout=0.0, attention_dropout=0.0, context=16
    )
    model = build_model(
        name, config, source_vocabulary=50, target_vocabulary=50, shared=True
    ).eval()
    ids = torch.arange(10, 10 + n)[None]
    changed = []

    def say(ids: torch.Tensor) -> torch.Tensor:
        text = Padded(ids, ids > 0)
        return (
            model(text, ids).hidden[0]
            if name == "gpt"
            else model.whole_states(text)[0][0, -n:]
        )

    with torch.inference_mode():
        before = say(ids)
        for place in range(n):
            other = ids.clone()
            other[0, place] = 40
            changed.append((say(other) - before).abs().amax(-1) > 1e-6)
    return torch.stack(changed, 1).float()


seen = {name: sees(name) for name in ("gpt", "bert")}
assert torch.equal(seen["gpt"], torch.ones(n, n).tril())
assert torch.equal(seen["bert"], torch.ones(n, n))
draw_matrix(
    seen["gpt"],
    words,
    words,
    numbers="",
    title="GPT: the place (row) sees the words (columns) up to itself",
)

# %%
draw_matrix(
    seen["bert"], words, words, numbers="", title="BERT: every place sees every word"
)

# %% [markdown]
# ## Two lessons from one text
#
# **GPT** learns from every word: six words, six questions. **BERT** asks about 15 % of the words. Of those, 80 % are replaced by `[MASK]`,
# 10 % by any word, and 10 % are left as they are, so that it cannot trust a word just because it is not masked.

# %% [markdown]
# This is what regard's own batches do, on English sentences that come with it:

# %%
import lzma
from collections import Counter

from regard.data.bundle import bundled_path
from regard.data.masking import ExamplePlan, Masking, collate_masked, stream_for_rows
from regard.data.tokenizers import Tokenizer, TokenizerConfig
from regard.data.wordpiece import MASK

with lzma.open(bundled_path("tatoeba-en-de"), "rt", encoding="utf-8") as lines:
    texts = [line.split("\t")[0] for line, _ in zip(lines, range(6000), strict=False)]
tokenizer = Tokenizer.train(
    texts, TokenizerConfig(kind="wordpiece", size=800), tags=(MASK,)
)
window = 48
stream = stream_for_rows([" ".join(texts)], tokenizer, window, lines=False)
masking = Masking.of(tokenizer, window)
plan = ExamplePlan(stream, 200, window, seed=1, pairs=False)
batch = collate_masked(
    stream, plan.epoch(0)[0], masking, window=window, rows=200, seed=1, epoch=0
)

places, were = batch.target_in[:, 1:], batch.target_out[:, 1:]
asked = were != 0
now = batch.source.tokens.gather(1, places)
kinds = Counter(
    "[MASK]" if a == masking.mask else "itself" if a == b else "another word"
    for a, b in zip(now[asked].tolist(), were[asked].tolist(), strict=True)
)
share = asked.sum().item() / batch.source.keep.sum().item()
print(
    f"asked about {share:.1%} of the tokens:",
    {kind: f"{count / asked.sum().item():.0%}" for kind, count in kinds.items()},
)
print(" ".join(tokenizer.pieces(batch.source.tokens[0, :14].tolist())))
assert abs(share - 0.15) < 0.03
assert abs(kinds["[MASK]"] / asked.sum().item() - 0.8) < 0.05

# %% [markdown]
# | | GPT | BERT |
# |---|---|---|
# | part of the Transformer | decoder, without cross-attention | encoder |
# | a place sees | itself and what was before | everything |
# | learns from | every next word | 15 % hidden words |
# | good at | writing | reading: labels, tags, vectors of words in context |
# | in regard | `model.name=gpt`; `regard generate`, `regard next` | `model.name=bert`; `regard fill`, `regard embed` |
#
# Both are then **fine-tuned**: the same weights begin a classifier or a tagger (`regard train --labelled TSV --from RUN`).
#
# More: [language models](../language_models.md), [masked models](../masked_models.md).
#
# **In the viewer:** `regard look RUN` with either, then [Next word](http://127.0.0.1:8020/#view=language) and
# [Attention](http://127.0.0.1:8020/#view=heads): the triangle, and the full square.
