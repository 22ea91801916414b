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
from regard.cli.looking_verbs import add_looking_verbs
from regard.cli.measuring_verbs import add_measuring_verbs
from regard.cli.reading_verbs import add_reading_verbs
from regard.cli.serving_verbs import add_serving_verbs
from regard.cli.text_verbs import add_text_verbs
from regard.cli.translating_verbs import add_translating_verbs

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


@app.command()
def demo(
    out: Annotated[Path, typer.Option(help="Where the run goes.")] = Path("regard-demo"),
    seconds: Annotated[int, typer.Option(help="How long to train. Default: by the task.", max=3600)] = 0,
    task: Annotated[str, typer.Option(help="translate, lm (a language model), classify, tag or embed.")] = "translate",
) -> None:
    """Translate with the bundled model, then train a small Transformer from nothing, score it and show its work.

    With --task lm: train a small GPT on the bundled Shakespeare, and let it write. classify: name the kind of text that a sentence
    is from; tag: parts of speech; embed: word vectors and their neighbours. Each trains on text that comes with regard.
    """
    with whole_imports():
        from regard.core.errors import ConfigError

        if task == "translate":
            from regard.cli.demo import run_demo
        elif task == "lm":
            from regard.cli.demo_text import run_text_demo as run_demo
        elif task == "classify":
            from regard.cli.demo_reading import run_classify_demo as run_demo
        elif task == "tag":
            from regard.cli.demo_reading import run_tag_demo as run_demo
        elif task == "embed":
            from regard.cli.demo_embed import run_embed_demo as run_demo
        else:
            raise ConfigError("--task", f"there is no demo of {task!r}", "Use translate, lm, classify, tag or embed")

    if seconds and seconds < 5:
        raise ConfigError("--seconds", f"{seconds} is less than 5", "Give at least 5, or 0 for the default")
    run_demo(out, seconds or {"translate": 170, "lm": 140}.get(task, 120))


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
    tagged: Annotated[
        str, typer.Option(help="For a tagger: CoNLL or CoNLL-U columns, a word and its tag on each line.")
    ] = "",
    allow: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Train although `regard data check` finds this.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(metavar="DIR", help="Go on with a run that stopped.")] = None,
    start_from: Annotated[
        Path | None,
        typer.Option(
            "--from",
            metavar="DIR",
            help="Start from a trained model (fine-tuning; perhaps of other depth): a run folder or a bundled model's name.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Say only warnings and errors.")] = False,
) -> None:
    """Train a model: from a recipe, from two aligned text files, from plain, labelled or tagged text."""
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
        given = (words, src, tgt, pairs, text, labelled, tagged, allow)
        if any(given) or start_from is not None or out is not None:
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
            tagged=tagged,
            settings=settings,
            allow=allow or (),
            start_from=start_from,
            report=report,
            command=shlex.join(["regard", *sys.argv[1:]]),
        )
    if result.interrupted is not None:
        steps = result.summary["steps"]
        when = f"and saved at step {steps}" if steps else "before the first step"
        if not report.silent:
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
    if "composes" in capabilities:
        return f"Let it write with: regard generate --model {quoted(folder)} --label LABEL"
    if "tags" in capabilities:
        return f'Tag with: regard tag --model {quoted(folder)} "..."'
    if "fills" in capabilities:
        return f'Fill in words with: regard fill --model {quoted(folder)} "... [MASK] ..."'
    if "embeds" in capabilities:
        return f"Find neighbours with: regard nearest WORD --model {quoted(folder)}"
    return f'Translate with: regard translate --model {quoted(folder)} "..."'


add_translating_verbs(app)
add_measuring_verbs(app)


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


add_looking_verbs(app)
add_serving_verbs(app)
add_text_verbs(app)
add_reading_verbs(app)
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


def _meant(verb: str, option: str | None) -> str:
    """For `regard train --steps 100`: settings are written otherwise than options. And `regard look RUN` has no --model."""
    if option == "--model" and verb in ("look", "show", "serve", "export"):
        return f"The model is given without it: `regard {verb} DIR`."
    if option == "--model" and verb in ("train", "plan"):
        return "Perhaps you mean model.name=NAME (`regard models` lists the names)."
    if option is None or verb not in ("train", "plan", "compare"):
        return ""
    from regard.training.config import SECTIONS
    from regard.training.model_section import models_with, settings_of

    name = option.lstrip("-").replace("-", "_")
    sections = [section for section in ("train", *SECTIONS) if name in settings_of(SECTIONS[section])]
    if not sections and models_with(name):
        sections = ["model"]
    return f"Perhaps you mean the setting {sections[0]}.{name}=VALUE, without dashes." if sections else ""


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
        advice = _meant(command.split()[-1], getattr(error, "option_name", None))
        return _fail(f"{command}: {said[:1].lower()}{said[1:]}. {advice or f'See `{command} --help`.'}", 2)
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
