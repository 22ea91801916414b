"""The verbs that measure, `evaluate`, `compare` and `plan`: thin layers, whose imports are inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports
from regard.cli.translating_verbs import DeviceOption, TagOption

FREQUENT = 30_000  # words that analogies are asked among


def add_measuring_verbs(app: typer.Typer) -> None:
    for verb in (evaluate, compare, plan):
        app.command()(verb)


def evaluate(
    src: Annotated[Path | None, typer.Option(help="Source text.")] = None,
    ref: Annotated[Path | None, typer.Option(help="Reference translations.")] = None,
    text: Annotated[
        list[Path] | None, typer.Option(help="For a language model, instead: plain text, a file or a folder of files.")
    ] = None,
    documents: Annotated[
        str, typer.Option(help="With --text, what one document is: line, file or blank (up to an empty line).")
    ] = "auto",
    labelled: Annotated[
        Path | None, typer.Option(help="For a classifier, instead: lines of a label, a tab and a text.")
    ] = None,
    tagged: Annotated[Path | None, typer.Option(help="For a tagger, instead: CoNLL or CoNLL-U columns.")] = None,
    analogies: Annotated[
        Path | None, typer.Option(help="For word vectors, instead: questions of four words, in sections.")
    ] = None,
    similarity: Annotated[
        list[Path] | None, typer.Option(help="For word vectors, instead: two words and how alike people find them.")
    ] = None,
    vocabulary: Annotated[
        int, typer.Option(help="With --analogies: only the so many most frequent words; 0 for all.")
    ] = FREQUENT,
    trigram: Annotated[
        float | None,
        typer.Option(
            metavar="WEIGHT", help="With --text: mix in a trigram of the training text, with this share (0 to 1)."
        ),
    ] = None,
    context: Annotated[int | None, typer.Option(help="With --text: tokens of a window that is read at once.")] = None,
    stride: Annotated[int | None, typer.Option(help="With --text: tokens from one window to the next.")] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            "-m",
            help="A run folder, a file of translations, or a name that `regard models` lists. Default: the bundled model.",
        ),
    ] = None,
    against: Annotated[
        Path | None, typer.Option(help="A second system: a run folder, or a file of its translations.")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Texts are tokenised already: split at spaces only, as in old papers.")
    ] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    metrics: Annotated[str, typer.Option(metavar="A,B,...", help="By which metrics. Default: bleu,chrf,ter.")] = "",
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw BLEU by source length into this .png, .svg or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the translations here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    tag: TagOption = "",
    device: DeviceOption = "auto",
) -> None:
    """BLEU, chrF, TER and perplexity of a model on a test set; with --against, is the difference significant?

    With --text: the perplexity of a language model, per token, word and byte. With --labelled: accuracy and F1 of a classifier;
    with --tagged: of a tagger. With --analogies and --similarity: how good word vectors are.
    """
    with whole_imports():
        from regard.cli.evaluate import run_evaluate
        from regard.cli.evaluate_text import run_evaluate_text
        from regard.core.errors import ConfigError

    of_translators = (src, ref, against, beam, tag, plot, out, tokenized, lowercase, metrics)
    of_text = context is not None or stride is not None or trigram is not None or documents != "auto"
    kinds = {"--text": text, "--labelled": labelled, "--tagged": tagged}
    kinds |= {"--analogies": analogies, "--similarity": similarity}
    given = [name for name, value in kinds.items() if value]
    if len(given) > 1 and given != ["--analogies", "--similarity"]:
        raise ConfigError(given[1], f"it does not go with {given[0]}", "Give one of them")
    if of_text and not text:
        raise ConfigError("evaluate", "--context, --stride, --trigram and --documents go with --text", "Leave them out")
    if vocabulary != FREQUENT and analogies is None:
        raise ConfigError("--vocabulary", "it goes with --analogies", "Leave it out")
    if text:
        if any(of_translators):
            what = "it goes with --model, --documents, --context, --stride, --trigram, --json and --device only"
            raise ConfigError("--text", what, "Leave the others out")
        run_evaluate_text(text, model, documents, context, stride, as_json, device, trigram)
        return
    if given:
        if any(of_translators):
            raise ConfigError(given[0], "it goes with --model, --json and --device only", "Leave the others out")
        if labelled:
            from regard.cli.classify import run_evaluate_labelled

            run_evaluate_labelled(labelled, model, as_json, device)
        elif tagged:
            from regard.cli.tag import run_evaluate_tagged

            run_evaluate_tagged(tagged, model, as_json, device)
        else:
            from regard.cli.embed import run_evaluate_vectors

            run_evaluate_vectors(analogies, similarity or [], model, vocabulary, as_json)
        return
    if src is None or ref is None:
        what = "there is nothing to evaluate on"
        if (src is None) != (ref is None):
            what = f"--{'ref' if ref is None else 'src'} is missing"
        raise ConfigError("evaluate", what, "Give --src and --ref, or --text, --labelled, --tagged, --analogies")
    run_evaluate(src, ref, model, against, tokenized, lowercase, metrics, beam, plot, out, as_json, tag, device)


def compare(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [section.key=value ...]",
            help="A recipe (name or path), and settings that go over all that is compared.",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The comparison's folder; an earlier one goes on.")
    ] = None,
    models: Annotated[
        str, typer.Option(metavar="A,B,...", help="Models, or recipes. Default: the recipe's own model.")
    ] = "",
    variant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEXT",
            help='One more entry of every model with other settings, "model.heads=1", or of one, "luong: model.score=dot".',
        ),
    ] = None,
    seeds: Annotated[int | None, typer.Option(help="How often each is trained. Default: 3.")] = None,
    budget: Annotated[
        str,
        typer.Option(help="What is equal: steps (default), time (of training), or parameters (and steps)."),
    ] = "",
    seconds: Annotated[float | None, typer.Option(help="With --budget time: of training, for each run.")] = None,
    parameters: Annotated[
        int | None, typer.Option(help="With --budget parameters: how many. Default: as the first model has.")
    ] = None,
    src: Annotated[str, typer.Option(help="Source text, one sentence per line.")] = "",
    tgt: Annotated[str, typer.Option(help="Target text, aligned with the source.")] = "",
    pairs: Annotated[str, typer.Option(help="Instead: one file with both sides.")] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Train although `regard data check` finds this.")
    ] = None,
    tokenized: Annotated[
        bool, typer.Option("--tokenized", help="Texts are tokenised already: split at spaces only, as in old papers.")
    ] = False,
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Ignore case.")] = False,
    report: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Only write the report of what is finished again.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a comparison that stopped.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings, errors and the result.")] = False,
) -> None:
    """Train several models on the same text with the same budget: which is better, by how much, and at what cost?"""
    with whole_imports():
        from regard.cli.compare import run_compare

    options = {
        "models": models, "variants": variant, "seeds": seeds, "budget": budget, "seconds": seconds,
        "parameters": parameters, "src": src, "tgt": tgt, "pairs": pairs, "allow": allow,
        "tokenized": tokenized, "lowercase": lowercase,
    }  # fmt: skip
    run_compare(recipe or [], options, out, report, resume, quiet)


def plan(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [section.key=value ...]", help="A recipe (name or path) and settings that go over it."
        ),
    ] = None,
    src: Annotated[str, typer.Option(help="Source text, one sentence per line.")] = "",
    tgt: Annotated[str, typer.Option(help="Target text, aligned with the source.")] = "",
    pairs: Annotated[str, typer.Option(help="Instead: one file with both sides.")] = "",
    text: Annotated[str, typer.Option(help="For a language model: plain text.")] = "",
    labelled: Annotated[str, typer.Option(help="For a classifier: lines of a label, a tab and a text.")] = "",
    tagged: Annotated[str, typer.Option(help="For a tagger: CoNLL or CoNLL-U columns.")] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Go on although `regard data check` finds this.")
    ] = None,
    start_from: Annotated[
        Path | None, typer.Option("--from", metavar="DIR", help="The run would start from this trained model.")
    ] = None,
    seconds: Annotated[float, typer.Option(help="How long steps are tried out for their speed.")] = 5.0,
    fit: Annotated[bool, typer.Option("--fit", help="Find the largest train.batch_tokens that fits.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings, errors and the result.")] = False,
) -> None:
    """Say before training what it takes: parameters, memory, tokens a second, time, and which batch fits. Nothing is written."""
    with whole_imports():
        from regard.cli.plan import run_plan

    files = {"src": src, "tgt": tgt, "pairs": pairs, "text": text, "labelled": labelled, "tagged": tagged}
    run_plan(recipe or [], files, allow or (), start_from, seconds, fit, as_json, quiet)
