# %% [markdown]
# # How good is it? BLEU, and the table
#
# A translation is compared with one that a person made. **BLEU** counts: of the words of the translation, how many are in the reference?
# Of its pairs of words? Triples? Fours? The geometric mean of the four shares, times a penalty for being too short:
#
# > BLEU = min(1, e^(1 − r/c)) · (p₁ p₂ p₃ p₄)^¼
#
# c is the length of the translation, r that of the reference. A word counts at most as often as it stands in the reference, so that "the
# the the the" does not win.

# %%
import math
from collections import Counter

translation = [
    "the",
    "animal",
    "did",
    "not",
    "cross",
    "the",
    "street",
    "because",
    "it",
    "was",
    "tired",
]
reference = [
    "the",
    "animal",
    "did",
    "not",
    "cross",
    "the",
    "road",
    "because",
    "it",
    "was",
    "too",
    "tired",
]


def grams(words: list[str], n: int) -> Counter:
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


shares = []
for n in (1, 2, 3, 4):
    ours, theirs = grams(translation, n), grams(reference, n)
    hits = sum(min(count, theirs[gram]) for gram, count in ours.items())
    shares.append(hits / sum(ours.values()))
    print(f"{n} in a row: {hits} of {sum(ours.values())}")
penalty = min(1.0, math.exp(1 - len(reference) / len(translation)))
bleu = 100 * penalty * math.prod(shares) ** 0.25
print(f"penalty {penalty:.3f}, BLEU {bleu:.2f}")

# %% [markdown]
# regard leaves the counting to sacreBLEU, with a signature that says how the text was cut into words. Over a whole test set counts are
# added up before they are divided.

# %%
from regard.evaluation.metrics import Flavour, Statistics

flavour = Flavour(tokenized=True)
measured = Statistics.of(
    "bleu", [" ".join(translation)], [" ".join(reference)], flavour
).value()
print(f"sacreBLEU: {measured:.2f}")
assert abs(measured - bleu) < 0.01

# %% [markdown]
# ## What it does not see
#
# BLEU looks at words, not at meaning. Swap "not" and it hardly notices:

# %%
flipped = "the animal did cross the road because it was not too tired"
kept = "the beast did not cross the road since it was too tired"
for text in (flipped, kept):
    score = Statistics.of("bleu", [text], [" ".join(reference)], flavour).value()
    print(f"{score:5.1f}  {text}")
better = [
    Statistics.of("bleu", [text], [" ".join(reference)], flavour).value()
    for text in (flipped, kept)
]
assert better[0] > better[1]  # the wrong one scores higher

# %% [markdown]
# So differences need many sentences, intervals, and tests of significance ([comparing](../compare.md)), and never compare BLEU scores of
# different flavours.
#
# ## The table
#
# The numbers that changed the field, WMT 2014, as published (tokenised BLEU, and the training cost in floating-point operations as the
# Transformer paper estimates it), and ours: the same three architectures, small, on Multi30k English to German, three seeds each
# ([details](../results.md)).
#
# | | published: En-De | En-Fr | training cost En-De | ours, Multi30k En-De | parameters | a step |
# |---|---|---|---|---|---|---|
# | GNMT (2016, with RL) | 24.6 | 39.9 | 2.3 · 10¹⁹ | 40.16 ± 0.05 | 14.8 M | 19.6 ms |
# | ConvS2S (2017) | 25.2 | 40.5 | 9.6 · 10¹⁸ | 40.78 ± 0.37 | 8.0 M | 10.9 ms |
# | Transformer base (2017) | 27.3 | 38.1 | 3.3 · 10¹⁸ | 41.02 ± 0.09 | 2.6 M | 9.7 ms |
# | Transformer big (2017) | 28.4 | 41.0 | 2.3 · 10¹⁹ | | | |
#
# The last column is a step of 8,192 tokens alone on one H200 ([equal time](../compared/multi30k-equal-time-en-de/README.md)). On longer text, Europarl, the Transformer reached
# GNMT's BLEU 1.6 times sooner than GNMT did, and ConvS2S's as soon as ConvS2S ([measured](../results.md#seconds-to-the-same-bleu)).
#
# (Multi30k is easy text, and its BLEU scores are another scale than those of WMT: compare within a column only.) The order is the same,
# though ours lie close together: the last two differ by no more than seeds do. The Transformer has the fewest weights. What the published
# table adds is the cost: base needs a seventh of GNMT's. Our Transformer was trained in two minutes on one H200.
#
# **In the viewer:** `regard look RUN`, then [Evaluation](http://127.0.0.1:8020/#view=evaluation): BLEU by length and the worst sentences, and
# [Two models](http://127.0.0.1:8020/#view=compare).
