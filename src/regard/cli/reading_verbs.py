"""The verbs of models that read, `tag`, `fill`, `embed`, `nearest` and `analogy`: thin layers, whose imports are inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports
from regard.cli.translating_verbs import DeviceOption

JsonOption = Annotated[bool, typer.Option("--json", help="One JSON object per text.")]
VectorsOption = Annotated[
    Path, typer.Option("--model", "-m", help="A run folder of word vectors, or a file in word2vec's format.")
]


def add_reading_verbs(app: typer.Typer) -> None:
    for verb in (tag, fill, embed, nearest, analogy):
        app.command()(verb)


def tag(
    model: Annotated[Path, typer.Option("--model", "-m", help="The run folder of a tagger.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="Text to tag. Without it, every line of standard input.")
    ] = None,
    split: Annotated[
        bool, typer.Option("--split/--words", help="Cut punctuation off words. --words: words are as spaces say.")
    ] = True,
    columns: Annotated[
        bool, typer.Option("--columns", help="A word, a tab and its tag on each line, as in CoNLL's files.")
    ] = False,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Name the tag of every word: its part of speech, or whatever the tagger was trained on."""
    with whole_imports():
        from regard.cli.tag import run_tag
        from regard.core.errors import ConfigError

    if columns and as_json:
        raise ConfigError("--columns", "it does not go with --json", "Give one of them")
    run_tag(text, model, as_json, device, split, columns)


def fill(
    model: Annotated[Path, typer.Option("--model", "-m", help="The run folder of a masked model, such as a BERT.")],
    text: Annotated[
        list[str] | None, typer.Argument(help="Text with [MASK] in it. Without it, standard input.")
    ] = None,
    top: Annotated[int, typer.Option(help="How many words to show.")] = 5,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """The most probable words for each [MASK] in a text, with their probabilities."""
    with whole_imports():
        from regard.cli.fill import run_fill

    run_fill(text, model, top, as_json, device)


def embed(
    model: Annotated[
        Path,
        typer.Option("--model", "-m", help="A run folder of word vectors or of a BERT, or a file of word vectors."),
    ],
    text: Annotated[
        list[str] | None,
        typer.Argument(help="Texts, one in each argument. Without them, every line of standard input."),
    ] = None,
    in_context: Annotated[
        str, typer.Option(metavar="WORD", help="Compare this word's vector in two places, layer by layer.")
    ] = "",
    vectors: Annotated[
        Path | None, typer.Option(help="With --in-context: word vectors to show beside, which know one sense only.")
    ] = None,
    as_json: JsonOption = False,
    device: DeviceOption = "auto",
) -> None:
    """Texts as vectors. With --in-context, one word's vectors in two sentences."""
    with whole_imports():
        from regard.cli.embed import run_embed

    run_embed(text, model, in_context, vectors, as_json, device)


def nearest(
    word: Annotated[list[str], typer.Argument(help="One or more words.")],
    model: VectorsOption,
    top: Annotated[int, typer.Option(help="How many neighbours to show.")] = 10,
    as_json: JsonOption = False,
) -> None:
    """The words whose vectors are nearest to a word's."""
    with whole_imports():
        from regard.cli.embed import run_nearest

    run_nearest(word, model, top, as_json)


def analogy(
    a: Annotated[str, typer.Argument(help="A word: man")],
    b: Annotated[str, typer.Argument(help="what it is to: king")],
    c: Annotated[str, typer.Argument(help="as this is to what? woman")],
    model: VectorsOption,
    top: Annotated[int, typer.Option(help="How many answers to show.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """a is to b as c is to ...?"""
    with whole_imports():
        from regard.cli.embed import run_analogy

    run_analogy(a, b, c, model, top, as_json)
