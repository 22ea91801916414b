# %% [markdown]
# # From sequence to sequence
#
# "They are watching." has three words and a full stop, "Ils regardent." two. A model that answers in step with its input cannot
# translate. The encoder-decoder (Sutskever; Cho 2014) can: one recurrent net **reads** the whole sentence and keeps its last state;
# another starts from that state and **writes**, word by word, until it writes the mark for the end.
#
# ```text
# They  are  watching  <eos>                Ils    regardent  <eos>
#   |    |      |        |                   ^         ^        ^
# [ ] > [ ] >  [ ]  >   [ ]  -- one vector > [ ]  >   [ ]   >  [ ]
#                                             |         |        |
#                                           <bos>      Ils   regardent
# ```
#
# ## A corpus of six persons and ten verbs
#
# French verbs change with the person, so the decoder has to look at more than one word. A few sentences are kept back, "They are
# watching" among them: the model has to put together what it learned from others.

# %%
import itertools
import random
import tempfile
from pathlib import Path

import regard

persons = {
    "I am": ("Je", "e"),
    "You are": ("Vous", "ez"),
    "He is": ("Il", "e"),
    "She is": ("Elle", "e"),
    "We are": ("Nous", "ons"),
    "They are": ("Ils", "ent"),
}
verbs = {
    "watching": "regard", "singing": "chant", "dancing": "dans", "speaking": "parl", "working": "travaill",
    "walking": "march", "dreaming": "rêv", "crying": "pleur", "cooking": "cuisin", "playing": "jou",
}  # fmt: skip
places = {
    "": "",
    " today": " aujourd'hui",
    " here": " ici",
    " together": " ensemble",
    " tonight": " ce soir",
}
pairs = [
    (f"{person} {verb}{place}", f"{subject} {stem}{ending}{where}")
    for (person, (subject, ending)), (verb, stem), (place, where) in itertools.product(
        persons.items(), verbs.items(), places.items()
    )
]
random.Random(1).shuffle(pairs)
kept_back = [
    ("They are watching", "Ils regardent"),
    *[pair for pair in pairs if pair[0] != "They are watching"][:25],
]
learned = [pair for pair in pairs if pair not in kept_back]
folder = Path(tempfile.mkdtemp())
(folder / "a.en").write_text("".join(english + "\n" for english, _ in learned))
(folder / "a.fr").write_text("".join(french + "\n" for _, french in learned))
print(len(learned), "pairs, such as", learned[0])

# %%
settings = (
    "model.name=sutskever model.width=64 model.layers=1 tokenizer.kind=word "
    "tokenizer.joint=false data.valid_size=10 data.test_size=10 train.steps=250 "
    "train.batch_tokens=512 train.lr=0.01 train.warmup=20 train.schedule=linear "
    "train.save_every=1000 train.threads=1 train.device=cpu train.label_smoothing=0 "
    "model.dropout=0"
)
out = Path(tempfile.mkdtemp())  # a new one whenever the cell is run
regard.train(src=str(folder / "a.en"), tgt=str(folder / "a.fr"), out=out, settings=settings)
translator = regard.load(out)
written = translator.translate([english for english, _ in kept_back])
right = sum(text == french for text, (_, french) in zip(written, kept_back, strict=True))
print(
    f"They are watching -> {written[0]}; {right} of {len(kept_back)} unseen sentences without a mistake"
)
assert written[0] == "Ils regardent"
assert right >= 20

# %% [markdown]
# ## Teacher forcing, and alone
#
# In **training** the decoder reads the *right* previous word at every step, whatever it would have written itself. All positions can
# then be computed at once, and one early mistake does not spoil the rest of the lesson. The input is the target shifted by one:
# `<bos> Ils regardent`, the answers wanted are `Ils regardent <eos>`.

# %%
import torch

from regard.core.types import BOS, EOS, pad_rows

model, tokenizers = translator.model.eval(), translator.tokenizers
source = pad_rows([[*tokenizers.source.encode(["They are watching"])[0], EOS]])
target = tokenizers.target.encode(["Ils regardent"])[0]
with torch.inference_mode():
    forced = model(source, torch.tensor([[BOS, *target]]))
    log_probs = model.output.scores(forced.hidden)[0]
for read, wanted, row in zip([BOS, *target], [*target, EOS], log_probs, strict=True):
    reads, wants = tokenizers.target.pieces([read, wanted])
    print(f"reads {reads:12} should write {wants:12} probability {row[wanted].exp():.2f}")
assert log_probs[0][target[0]].exp() > 0.5

# %% [markdown]
# At **test** time there is no teacher. The decoder reads `<bos>`, writes a word, reads its *own* word, and so on until `<eos>`. This
# loop is all of greedy search:

# %%
with torch.inference_mode():
    memory, state = model.start(source)
    word, text = BOS, []
    while word != EOS and len(text) < 10:
        hidden, state = model.step(torch.tensor([[word]]), memory, state)
        word = model.output.scores(hidden)[0, 0].argmax().item()
        text.append(word)
print(tokenizers.target.pieces(text))
assert tokenizers.target.decode([text[:-1]])[0] == "Ils regardent"
assert text[-1] == EOS

# %% [markdown]
# ## A CNN reads, an RNN writes
#
# The encoder need not be recurrent. RCTM (Kalchbrenner and Blunsom 2013) folds the source with [convolutions](05_convolutions.md) until one
# vector is left, and gives it to a recurrent decoder. Same corpus, same training, one setting changed:

# %%
other = settings.replace("model.name=sutskever", "model.name=rctm1").replace(
    "model.layers=1 ", ""
)
folds = Path(tempfile.mkdtemp())
regard.train(src=str(folder / "a.en"), tgt=str(folder / "a.fr"), out=folds, settings=other)
folded = regard.load(folds).translate([english for english, _ in kept_back])
right = sum(text == french for text, (_, french) in zip(folded, kept_back, strict=True))
print(f"They are watching -> {folded[0]}; {right} of {len(kept_back)} without a mistake")
assert right >= 18

# %% [markdown]
# ## The bottleneck
#
# Everything that the decoder knows of the source went through one vector: 64 numbers here, whether the sentence has three words or
# thirty.

# %%
memory, state = model.start(source)
print(
    "what is known of the source:",
    [tuple(part.shape) for part in state.leaves()],
    "and memory of",
    len(memory.leaves()),
    "tensors",
)
assert memory.leaves() == []

# %% [markdown]
# That does not go well for long. Reversing random letters, with models of the same size and training
# ([measured](../results.md#reversing-sequences)): those that keep the source in one vector run out of room; those with attention do not.
#
# ![Share of sequences reversed without a mistake, by length](../pictures/reversal.png)
#
# **In the viewer:** `regard look RUN` with this run (its folder is `out`), then [States over time](http://127.0.0.1:8020/#view=recurrent).
