"""The `regard` command. Each verb is a thin layer over a documented function; imports are inside the verbs."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.data import app as data_app
from regard.cli.exchange_verbs import add_exchange_verbs
from regard.cli.imports import whole_imports
from regard.cli.text_verbs import add_text_verbs

app = typer.Typer(
    name="regard",
    help="Train, decode, measure and look into sequence models, from word vectors to the Transformer.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.add_typer(data_app)

NO_MEMORY = ("can't allocate memory", "Storage size calculation overflowed")  # what torch's RuntimeErrors say

ModelOption = Annotated[
    Path | None,
    typer.Option(
        "--model",
        "-m",
        help="A run folder, or a name that `regard models` lists. Default: the bundled English-German model.",
    ),
]
TagOption = Annotated[str, typer.Option(help="What kind of text it is, for models trained with tags, such as <news>.")]
DeviceOption = Annotated[str, typer.Option("--device", help="auto, cpu, cuda, cuda:N or mps.")]


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes.")] = Path("regard-demo"),
    seconds: Annotated[int, typer.Option(help="How long to train. Default: 170, or 140 for lm.", max=3600)] = 0,
    task: Annotated[str, typer.Option(help="translate, or lm: a language model.")] = "translate",
) -> None:
    """Translate with the bundled model, then train a small Transformer from nothing, score it and show its work.

    With --task lm: train a small GPT on the bundled Shakespeare, and let it write.
    """
    with whole_imports():
        from regard.core.errors import ConfigError

        if task == "translate":
            from regard.cli.demo import run_demo
        elif task == "lm":
            from regard.cli.demo_text import run_text_demo as run_demo
        else:
            raise ConfigError("--task", f"there is no demo of {task!r}", "Use translate or lm")

    if seconds and seconds < 5:
        raise ConfigError("--seconds", f"{seconds} is less than 5", "Give at least 5, or 0 for the default")
    run_demo(out, seconds or (170 if task == "translate" else 140))


@app.command()
def train(
    recipe: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RECIPE] [section.key=value ...]", help="A recipe (name or path) and settings that go over it."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="The new run's folder.")] = None,
    src: Annotated[str, typer.Option(help="Source text, one sentence per line (.gz, .xz and .zst too).")] = "",
    tgt: Annotated[str, typer.Option(help="Target text, aligned with the source.")] = "",
    pairs: Annotated[
        str,
        typer.Option(
            help="Instead: one file with both sides (.tsv, .csv, .jsonl, .tmx, .parquet; - is standard input)."
        ),
    ] = "",
    text: Annotated[
        str, typer.Option(help="For a language model: plain text, one document per line, or a folder of files.")
    ] = "",
    labelled: Annotated[str, typer.Option(help="For a classifier: lines of a label, a tab and a text.")] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Train although `regard data check` finds this.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a run that stopped.")] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Start a new run from a trained model (fine-tuning): a run folder or a bundled model's name.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and errors.")] = False,
) -> None:
    """Train a model: from a recipe, from two aligned text files, from plain text, or from labelled text."""
    import shlex

    with whole_imports():
        from regard.core.errors import ConfigError
        from regard.core.files import quoted
        from regard.training.progress import Reporter
        from regard.training.run import resume as resume_run
        from regard.training.run import train as train_run

    words = recipe or []
    names, settings = [w for w in words if "=" not in w], [w for w in words if "=" in w]
    report = Reporter(quiet)
    if resume is not None:
        if words or src or tgt or pairs or text or labelled or allow or start_from is not None or out is not None:
            raise ConfigError(
                "--resume",
                "a run goes on with the settings it began with",
                "Leave the other arguments out, or start a new run with --from",
            )
        result = resume_run(resume, report)
    else:
        if len(names) > 1:
            advice = "Give files as --src and --tgt, settings as section.key=value without spaces, and quote names with spaces"
            raise ConfigError("train", f"more than one recipe is given ({', '.join(names)})", advice)
        if out is None:
            raise ConfigError("train", "there is no output folder", "Give --out DIR")
        result = train_run(
            names[0] if names else None,
            out=out,
            src=src,
            tgt=tgt,
            pairs=pairs,
            text=text,
            labelled=labelled,
            settings=settings,
            allow=allow or (),
            start_from=start_from,
            report=report,
            command=shlex.join(["regard", *sys.argv[1:]]),
        )
    if result.interrupted is not None:
        steps = result.summary["steps"]
        when = f"and saved at step {steps}" if steps else "before the first step"
        typer.echo(f"Stopped {when}. Go on with: regard train --resume {quoted(result.folder)}", err=True)
        raise typer.Exit(128 + result.interrupted)
    report.say(f"Done: {result.folder}. {_what_next(result.folder)}")


def _what_next(folder: Path) -> str:
    from regard.core.files import quoted
    from regard.models.base import MODELS
    from regard.tasks.folder import read_config

    capabilities = MODELS.get(str(read_config(folder)["model"]["name"])).capabilities
    if "continues" in capabilities:
        return f'Let it write with: regard generate --model {quoted(folder)} --prompt "..."'
    if "classifies" in capabilities:
        return f'Classify with: regard classify --model {quoted(folder)} "..."'
    return f'Translate with: regard translate --model {quoted(folder)} "..."'


@app.command()
def translate(
    text: Annotated[
        list[str] | None,
        typer.Argument(
            help="Text to translate. Without it, the lines of standard input are translated: regard translate < FILE"
        ),
    ] = None,
    model: ModelOption = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    nbest: Annotated[
        int | None,
        typer.Option(help="Translations shown per line; more than one are written as: line ||| text ||| score."),
    ] = None,
    length_penalty: Annotated[float | None, typer.Option(help="The exponent of the length normalisation.")] = None,
    length_norm: Annotated[str | None, typer.Option(help="gnmt, plain or none.")] = None,
    coverage: Annotated[float | None, typer.Option(help="Weight of GNMT's coverage penalty.")] = None,
    no_repeat: Annotated[int | None, typer.Option(help="Forbid n-grams of this size to appear twice.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Most tokens of a translation.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random instead of searching.")] = False,
    temperature: Annotated[float | None, typer.Option(help="Sampling: below 1 is tamer, above 1 wilder.")] = None,
    top_k: Annotated[int | None, typer.Option(help="Sampling: only the k likeliest tokens.")] = None,
    top_p: Annotated[
        float | None, typer.Option(help="Sampling: only the likeliest tokens that make up this probability.")
    ] = None,
    min_p: Annotated[
        float | None, typer.Option(help="Sampling: only tokens at least this likely relative to the likeliest.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling: another seed, other draws.")] = None,
    prefix: Annotated[str, typer.Option(help="Target text that every translation must begin with.")] = "",
    tag: TagOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line: tokens, scores, attention.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Translate text: arguments, or standard input line by line."""
    with whole_imports():
        from regard.cli.translate import run_translate

    changes = {
        "beam": beam, "nbest": nbest, "alpha": length_penalty, "length_norm": length_norm, "coverage": coverage,
        "no_repeat_ngram": no_repeat, "max_length": max_length, "temperature": temperature, "top_k": top_k,
        "top_p": top_p, "min_p": min_p, "seed": seed, "method": "sample" if sample else None,
    }  # fmt: skip
    run_translate(text, model, {k: v for k, v in changes.items() if v is not None}, prefix, tag, as_json, device)


@app.command()
def score(
    src: Annotated[Path, typer.Option(help="Source text.")],
    tgt: Annotated[Path, typer.Option(help="Translations to score.")],
    model: ModelOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line, with the log-probability of each token.")
    ] = False,
    tag: TagOption = "",
    device: DeviceOption = "auto",
) -> None:
    """Log-probability of given translations, one line per pair."""
    from regard.cli.translate import run_score

    run_score(src, tgt, model, tag, as_json, device)


@app.command()
def align(
    src: Annotated[Path, typer.Option(help="Source text.")],
    tgt: Annotated[Path, typer.Option(help="Its translations.")],
    model: ModelOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the alignments here.")] = None,
    gold: Annotated[
        Path | None,
        typer.Option(
            help="Print the alignment error rate against these alignments instead: 0-1 is a sure link, 0?1 a possible one."
        ),
    ] = None,
    gold_from_one: Annotated[
        bool, typer.Option("--gold-from-one", help="The gold alignments count words from 1, not from 0.")
    ] = False,
    reverse: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="A model of the other direction, whose links are joined with these."),
    ] = None,
    symmetrise: Annotated[
        str | None,
        typer.Option(help="How they are joined: intersection, union or grow-diag-final-and (which is the default)."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(help="Link a target word to all source words with this share of its attention, not to the best."),
    ] = None,
    null: Annotated[
        bool,
        typer.Option(help="Leave a target word alone if the source's end has more of its attention than any word."),
    ] = True,
    tag: TagOption = "",
    reverse_tag: Annotated[str, typer.Option(help="The same for the model of the other direction.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the error rate as a JSON object.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Which words of given translations belong together, by attention: 0-0 1-2 ... (source-target), one line per pair."""
    with whole_imports():
        from regard.cli.align import run_align
        from regard.tasks.alignment import LinkRule

    rule = LinkRule(threshold=threshold, null=null)
    run_align(src, tgt, model, out, gold, gold_from_one, reverse, symmetrise, rule, tag, reverse_tag, as_json, device)


@app.command()
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
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw BLEU by source length into this .png, .svg or .pdf.")] = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Write the translations here.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    tag: TagOption = "",
    device: DeviceOption = "auto",
) -> None:
    """BLEU, chrF, TER and perplexity of a model on a test set; with --against, is the difference significant?

    With --text: the perplexity of a language model, per token, word and byte. With --labelled: accuracy and F1 of a classifier.
    """
    with whole_imports():
        from regard.cli.evaluate import run_evaluate
        from regard.cli.evaluate_text import run_evaluate_text
        from regard.core.errors import ConfigError

    if text:
        if src or ref or against or beam or tag or plot or out or tokenized or lowercase:
            what = "it goes with --model, --documents, --context, --stride, --trigram, --json and --device only"
            raise ConfigError("--text", what, "Leave the others out")
        run_evaluate_text(text, model, documents, context, stride, as_json, device, trigram)
        return
    if labelled:
        if src or ref or against or beam or tag or plot or out or tokenized or lowercase:
            raise ConfigError("--labelled", "it goes with --model, --json and --device only", "Leave the others out")
        from regard.cli.classify import run_evaluate_labelled

        run_evaluate_labelled(labelled, model, as_json, device)
        return
    if src is None or ref is None:
        raise ConfigError(
            "evaluate", "there is nothing to evaluate on", "Give --src and --ref, or --text, or --labelled"
        )
    if context is not None or stride is not None or trigram is not None or documents != "auto":
        raise ConfigError("evaluate", "--context, --stride, --trigram and --documents go with --text", "Leave them out")
    run_evaluate(src, ref, model, against, tokenized, lowercase, beam, plot, out, as_json, tag, device)


@app.command()
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


@app.command()
def models() -> None:
    """The architectures that can be trained, and the models that ship with regard."""
    from regard.cli.show import run_models

    run_models()


@app.command()
def recipes(name: Annotated[str | None, typer.Argument(help="Print this recipe.")] = None) -> None:
    """The recipes that ship with regard."""
    from regard.cli.show import run_recipes

    run_recipes(name)


@app.command()
def show(
    folder: Annotated[
        Path | None, typer.Argument(help="A run folder, or the name of a bundled model (the default).")
    ] = None,
) -> None:
    """A run's card: model, data, scores, command."""
    from regard.cli.show import run_show

    run_show(folder)


def _version(wanted: bool) -> None:
    if wanted:
        from regard import __version__

        typer.echo(f"regard {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


add_text_verbs(app)
add_exchange_verbs(app)


def run() -> None:
    """The entry point: whatever a user can mend is one sentence on standard error, without a traceback."""
    from regard.core.errors import RegardError

    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")  # type: ignore[union-attr]
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        try:
            code = app(prog_name="regard", standalone_mode=False)
        except RegardError as error:
            sys.exit(_fail(str(error), 1))
        except KeyboardInterrupt:
            print("Stopped.", file=sys.stderr)
            sys.exit(130)
        except OSError as error:
            if error.errno is None:
                raise
            place = f"{error.filename}: " if error.filename is not None else ""
            sys.exit(
                _fail(
                    f"{place}the system says {error.strerror!r}. Check the path, its permissions and the free space.", 1
                )
            )
        except Exception as error:
            sys.exit(_fail_by_kind(error))
    sys.exit(code if isinstance(code, int) else 0)


def _fail(sentence: str, code: int) -> int:
    print("Error: " + " ".join(sentence.split()), file=sys.stderr)
    return code


def _fail_by_kind(error: Exception) -> int:
    """Errors of libraries that a user can mend: a misspelt option, too little memory. All others are raised again."""
    if type(error).__name__ in ("Abort", "NoArgsIsHelpError"):
        if hasattr(error, "show"):
            error.show()  # type: ignore[attr-defined]
        return 130 if type(error).__name__ == "Abort" else 2
    if hasattr(error, "format_message"):  # typer's own copy of click has no name to import it by in all versions
        context = getattr(error, "ctx", None)
        command = context.command_path if context is not None else "regard"
        said = error.format_message().rstrip(".?")  # type: ignore[attr-defined]
        return _fail(f"{command}: {said[:1].lower()}{said[1:]}. See `{command} --help`.", 2)
    memory = (
        isinstance(error, MemoryError)
        or "OutOfMemory" in type(error).__name__
        or any(sign in str(error) for sign in NO_MEMORY)
    )
    if memory:
        return _fail(
            "memory: there is not enough of it for this. "
            "Lower train.batch_tokens, model.width or --beam, or use another device.",
            1,
        )
    raise error


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print("Warning: " + " ".join(str(message).split()), file=sys.stderr)


if __name__ == "__main__":
    run()
