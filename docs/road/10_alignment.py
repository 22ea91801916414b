# %% [markdown]
# # Looking back at the source
#
# The encoder-decoder squeezes a sentence into one vector. Bahdanau (2015) lets the decoder look back instead. The encoder keeps a
# state hⱼ for *every* source word; before writing word i, the decoder asks, with its own state s_{i−1} as the query, which of them it
# needs:
#
# > e_ij = vᵀ tanh(W s_{i−1} + U hⱼ), α_ij = softmax over j, c_i = Σⱼ α_ij hⱼ
#
# Keys and values are the hⱼ; c_i, the context, goes into the next state. Nobody tells the model which word translates which. It
# finds out, because that helps.
#
# ## A small trial
#
# In French most adjectives follow their noun: "red house" is "maison rouge". A corpus of such phrases, three or four in a row, so
# that there is too much to keep in mind:

# %%
import random
import tempfile
from pathlib import Path

import regard

nouns = dict(
    zip(
        ["house", "table", "car", "dress", "key", "lamp", "door", "chair"],
        ["maison", "table", "voiture", "robe", "clé", "lampe", "porte", "chaise"],
        strict=True,
    )
)
colours = dict(
    zip(
        ["red", "yellow", "pink", "beige", "mauve", "orange", "clean", "fragile"],
        ["rouge", "jaune", "rose", "beige", "mauve", "orange", "propre", "fragile"],
        strict=True,
    )
)
draw = random.Random(2)


def pair() -> tuple[str, str]:
    phrases = [
        (draw.choice(list(colours)), draw.choice(list(nouns)))
        for _ in range(draw.randint(2, 4))
    ]
    return " and ".join(f"{c} {n}" for c, n in phrases), " et ".join(
        f"{nouns[n]} {colours[c]}" for c, n in phrases
    )


learned, kept_back = [pair() for _ in range(1200)], [pair() for _ in range(20)]
folder = Path(tempfile.mkdtemp())
(folder / "a.en").write_text("".join(english + "\n" for english, _ in learned))
(folder / "a.fr").write_text("".join(french + "\n" for _, french in learned))
print(*kept_back[0], sep=" -> ")


# %%
def train(name: str, more: str) -> regard.Translator:
    settings = (
        f"{more} tokenizer.kind=word tokenizer.joint=false data.valid_size=5 "
        "data.test_size=5 train.batch_tokens=600 train.lr=0.01 train.warmup=10 "
        "train.schedule=linear train.save_every=1000 train.threads=1 train.device=cpu "
        "train.label_smoothing=0 model.dropout=0"
    )
    out = Path(tempfile.mkdtemp()) / name
    regard.train(
        src=str(folder / "a.en"),
        tgt=str(folder / "a.fr"),
        out=out,
        settings=settings,
    )
    return regard.load(out)


bahdanau = train(
    "bahdanau",
    "model.name=bahdanau model.width=32 model.embedding=32 model.attention=32 model.readout=32 train.steps=150",
)
written = bahdanau.translate([english for english, _ in kept_back])
right = sum(text == french for text, (_, french) in zip(written, kept_back, strict=True))
print(right, "of", len(kept_back), "others without a mistake")
assert right >= 17

# %% [markdown]
# What did it look at? Each row is a word that was written, each column a word that was read:

# %%
from regard.evaluation.plots import draw_alignment

seen = regard.look(bahdanau, "red house and pink lamp and clean door")
weights, targets, sources = seen.trace.aligned("words")
print(seen.trace.answer, [sources[i] for i in weights.argmax(1)])
assert seen.trace.answer == "maison rouge et lampe rose et porte propre"
draw_alignment(
    weights, sources, targets, title="Rows sum to 1: what each written word looked at"
)

# %% [markdown]
# It goes through the source phrase by phrase, without having been told of phrases. Within a phrase one look is often enough: the
# encoder reads in both directions, so that its state at "pink" knows of the lamp as well.
#
# ## Luong: global and local
#
# Luong (2015) made it plainer: the query is the *current* state, and the score may be a mere dot product. He also asked whether all
# words have to be looked at. **Global** attention does; **local** attention predicts a place p_t in the source and looks only at a
# window around it, with a Gaussian that favours the middle. Both, with the same training:

# %%
sizes = "model.name=luong model.width=32 model.embedding=32 model.layers=1 model.reverse=false train.steps=150"
kinds = {
    "global": "model.attention=global",
    "local": "model.attention=local-p model.window=2",
}
trained = {kind: train(f"luong-{kind}", f"{sizes} {how}") for kind, how in kinds.items()}
for kind, translator in trained.items():
    written = translator.translate([english for english, _ in kept_back])
    right = sum(
        text == french for text, (_, french) in zip(written, kept_back, strict=True)
    )
    print(f"{kind:6} {right} of {len(kept_back)} without a mistake")
    assert right >= 15
luong = trained["local"]
phrase = "yellow key and red car and beige chair"
seen = regard.look(luong, phrase)
print(phrase, "->", seen.trace.answer)
sums = seen.alignment.sum(1)
print("rows sum to", [round(float(value), 2) for value in sums])
assert (sums < 1.0001).all()
assert (sums < 0.999).any()
draw_alignment(
    seen.alignment,
    seen.trace.source.tokens,
    seen.trace.target.tokens,
    title="Local attention: a window, and a bell over it",
)

# %% [markdown]
# Noun and adjective cross: "chaise beige" is written from "chair", then from "beige". The rows of local attention sum to less than 1: the
# bell takes something away, and the paper does not fill it up again.
#
# Which is better? It depends on the order of the words. There is a third kind, **local-m**, whose window simply moves on with the target. On
# letters that have to be written backwards it looks at the wrong end, and is worth as little as no attention; the predicted place finds the
# right one, and goes on beyond the lengths it was trained on ([measured](../results.md#global-against-local-attention)):
#
# | sequences reversed without a mistake | 13 to 16 letters | 17 to 20, not trained on |
# |---|---|---|
# | no attention (Cho) | 20.0 % | 0.0 % |
# | local-m, window 2 | 22.5 % | 0.2 % |
# | global | 100.0 % | 81.2 % |
# | local-p, window 2 | 100.0 % | 99.8 % |
#
# Between English and German, where order changes little, it is the other way round, after 800 steps on short sentences (local-m 7.2 BLEU, global 5.7, local-p 3.6) and
# after 1,500 on captions (37.7, 32.6, 31.0). To know at once about where to look helps at the beginning.
#
# ## A real sentence
#
# The translator inside regard is a Transformer; its cross-attention plays the same part. German puts the participle last, and
# the line of weights jumps.

# %%
from regard.looking.figures import alignment_figure

seen = regard.look(regard.load(), "She gave him the red book yesterday.")
print(seen.trace.answer)
alignment_figure(seen.trace, words=True)

# %% [markdown]
# ## What it is worth
#
# BLEU by sentence length, eleven translators trained alike on Multi30k ([the whole comparison](../compared/multi30k-equal-steps-en-de/README.md)).
# Sutskever and Cho have one vector for the source; Bahdanau, Luong, GNMT, ConvS2S and the Transformers look back:
#
# ![BLEU by sentence length](../compared/multi30k-equal-steps-en-de/pictures/lengths.png)
#
# | with the same 1,500 steps | BLEU, English to German |
# |---|---|
# | one vector: Sutskever, Cho | 17.7, 30.1 |
# | attention: Luong, Bahdanau | 37.4, 39.4 |
#
# Captions are short. The figure that made attention famous needs long sentences, and training that has not seen them: Bahdanau et al.
# trained up to 30 and up to 50 words. Here it is from runs of our own on speeches of the European Parliament, English to German, 30,000 whole
# words, the rest unknown ([details](../results.md#one-vector-or-attention-by-length)):
#
# ![BLEU by the length of the source: one vector and attention, trained up to 30 and 50 words](../pictures/lengths.png)
#
# | BLEU, trained up to | 1 to 10 words | 21 to 30 | 51 to 60 |
# |---|---|---|---|
# | one vector (Cho), 30 words | 14.0 | 7.1 | 4.9 |
# | one vector (Cho), 50 words | 14.1 | 7.5 | 5.7 |
# | attention (Bahdanau), 30 words | 19.5 | 18.0 | 15.0 |
# | attention (Bahdanau), 50 words | 19.9 | 18.7 | 19.4 |
#
# One vector forgets with every word. Attention does not, as far as it was trained to read: up to 30 words it falls off beyond 40, up to 50 it
# does not fall off at all.
#
# **In the viewer:** `regard look`, then [Alignment](http://127.0.0.1:8020/#view=alignment), and
# [Local attention](http://127.0.0.1:8020/#view=local) for a Luong model with `model.attention=local-p`.
