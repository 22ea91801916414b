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
    config = MODELS.get(name).Config(width=32, layers=2, heads=4, dropout=0.0, attention_dropout=0.0, context=16)
    model = build_model(name, config, source_vocabulary=50, target_vocabulary=50, shared=True).eval()
    ids = torch.arange(10, 10 + n)[None]
    changed = []

    def say(ids: torch.Tensor) -> torch.Tensor:
        text = Padded(ids, ids > 0)
        return model(text, ids).hidden[0] if name == "gpt" else model.whole_states(text)[0][0, -n:]

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
draw_matrix(seen["gpt"], words, words, numbers="", title="GPT: the place (row) sees the words (columns) up to itself")

# %%
draw_matrix(seen["bert"], words, words, numbers="", title="BERT: every place sees every word")

# %% [markdown]
# ## Two lessons from one text
#
# **GPT** learns from every word: six words, six questions. **BERT** asks about 15 % of the words. Of those, 80 % are replaced by `[MASK]`,
# 10 % by any word, and 10 % are left as they are, so that it cannot trust a word just because it is not masked.

# %%
from collections import Counter

generator = torch.Generator().manual_seed(0)
chosen = torch.rand(100_000, generator=generator) < 0.15
fate = torch.rand(100_000, generator=generator)
kinds = Counter("[MASK]" if f < 0.8 else "another word" if f < 0.9 else "itself" for f in fate[chosen].tolist())
print(
    f"asked about {chosen.float().mean():.1%}:",
    {kind: f"{count / chosen.sum().item():.0%}" for kind, count in kinds.items()},
)
assert abs(chosen.float().mean() - 0.15) < 0.01

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
