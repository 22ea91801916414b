"""The verbs of translators, `translate`, `score` and `align`: thin layers, whose imports are inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.imports import whole_imports

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
ComputeOption = Annotated[
    str,
    typer.Option(
        "--compute",
        help="auto, float32, bfloat16; on a CPU int8, int8_float32 (CTranslate2's). auto: CTranslate2 int8, torch float32.",
    ),
]


def add_translating_verbs(app: typer.Typer) -> None:
    for verb in (translate, score, align, shortlist, calibrate, backtranslate, distil):
        app.command()(verb)


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
    groups: Annotated[
        int | None, typer.Option(help="Parts of the beam that are kept from writing the same (diverse beam search).")
    ] = None,
    diversity: Annotated[float | None, typer.Option(help="How much groups are kept apart; 0.5 is usual.")] = None,
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
    alternatives: Annotated[
        int, typer.Option(help="Show so many ways to go on after --prefix, each with the rest of its translation.")
    ] = 0,
    tag: TagOption = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line: tokens, scores, attention.")
    ] = False,
    beside: Annotated[
        list[Path] | None,
        typer.Option("--with", help="Another run that writes together with --model; may be given several times."),
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option(help="The share of each model, --model's first. Default: equal ones.")
    ] = None,
    mix: Annotated[str, typer.Option(help="How models write together: log (geometric mean) or mean.")] = "log",
    fuse: Annotated[
        Path | None, typer.Option(help="A language model of the target language whose scores are added.")
    ] = None,
    fusion: Annotated[float, typer.Option(help="What the scores of --fuse are multiplied by.")] = 0.1,
    mbr: Annotated[
        str | None,
        typer.Option(help="Draw many translations, take the one most like the others by chrf or bleu."),
    ] = None,
    samples: Annotated[int, typer.Option(help="How many translations --mbr draws.")] = 32,
    channel: Annotated[
        Path | None, typer.Option(help="A translator of the other direction, to rerank the beam (noisy channel).")
    ] = None,
    rerank_lm: Annotated[
        Path | None, typer.Option("--rerank-lm", help="A language model of the target language, to rerank the beam.")
    ] = None,
    rerank_with: Annotated[
        Path | None, typer.Option("--rerank-with", help="Another translator of the same languages, to rerank the beam.")
    ] = None,
    glossary: Annotated[
        Path | None,
        typer.Option(help="Terms that must be written: lines of source, tab, target (forms with | between; = stays)."),
    ] = None,
    keep: Annotated[
        list[str] | None,
        typer.Option(help="What stays as it is: url, email, placeholder, tag or number; may be given several times."),
    ] = None,
    draft: Annotated[
        Path | None,
        typer.Option(help="A small translator with the same tokenizer that guesses: the same text, sooner."),
    ] = None,
    ahead: Annotated[int, typer.Option(help="How many tokens --draft guesses at a time.")] = 2,
    guard: Annotated[
        bool, typer.Option("--guard/--no-guard", help="Take another hypothesis for a loop, nothing, a copy.")
    ] = True,
    device: DeviceOption = "auto",
    engine: Annotated[
        str,
        typer.Option(help="auto, torch or ctranslate2. auto: CTranslate2 on a CPU, where it can do what is asked for."),
    ] = "auto",
    compute: ComputeOption = "auto",
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Say on standard error which engine answered.")
    ] = False,
    source: Annotated[
        Path | None,
        typer.Option("--input", help="A file of any size (.gz, .xz and .zst too). Killed, the same command goes on."),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", help="Where its translations go. torchrun spreads the work.")
    ] = None,
) -> None:
    """Translate text: arguments, standard input line by line, or a large file."""
    with whole_imports():
        from regard.cli.translate import Choice, Together, run_translate

    changes = {
        "beam": beam, "nbest": nbest, "groups": groups, "diversity": diversity, "alpha": length_penalty,
        "length_norm": length_norm, "coverage": coverage, "no_repeat_ngram": no_repeat, "max_length": max_length,
        "temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p, "seed": seed,
        "method": "sample" if sample else None,
    }  # fmt: skip
    given = {k: v for k, v in changes.items() if v is not None}
    together = Together(beside or [], weight, mix, fuse, fusion)
    choice = Choice(mbr, samples, channel, rerank_lm, rerank_with, guard, glossary, keep or [], draft, ahead)
    files = None
    if source is not None or output is not None:
        from regard.cli.translate_file import check_files

        files = check_files(text, source, output)
    if alternatives:
        from regard.cli.alternatives import run_alternatives

        run_alternatives(text, model, given, prefix, tag, alternatives, as_json, device, compute)
        return
    run_translate(text, model, given, prefix, tag, as_json, device, engine, compute, verbose, together, choice, files)


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


def calibrate(
    src: Annotated[Path, typer.Option(help="Held-out source text; 500 lines are good.")],
    tgt: Annotated[Path, typer.Option(help="Its translations.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="The run folder of a translator.")],
    tag: TagOption = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print the reliability as one JSON object.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Make confidences mean what they say: fit them on held-out pairs, keep them in the run, and show how reliable they are."""
    with whole_imports():
        from regard.cli.calibrate import run_calibrate

    run_calibrate(model, src, tgt, tag, as_json, device)


def backtranslate(
    text: Annotated[Path, typer.Argument(help="Text of the language you want to translate into, one sentence a line.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The pairs: lines of source, tab, target.")],
    model: Annotated[Path, typer.Option("--model", "-m", help="A translator of the other direction.")],
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw at random: more varied sources.")] = False,
    top_k: Annotated[int | None, typer.Option(help="Sampling: only the k likeliest tokens.")] = None,
    seed: Annotated[int | None, typer.Option(help="Sampling: another seed, other draws.")] = None,
    tag: TagOption = "",
    device: DeviceOption = "auto",
    engine: Annotated[str, typer.Option(help="auto, torch or ctranslate2.")] = "auto",
    compute: ComputeOption = "auto",
) -> None:
    """Make training pairs of plain text by a model of the other direction. Killed, it goes on where it was; torchrun spreads it."""
    with whole_imports():
        from regard.cli.synthesise import run_synthesise

    wishes = {"beam": beam, "top_k": top_k, "seed": seed, "method": "sample" if sample else None}
    given = {name: value for name, value in wishes.items() if value is not None}
    run_synthesise("back", text, out, model, None, given, tag, device, engine, compute)


def distil(
    text: Annotated[Path, typer.Argument(help="Source text, one sentence a line.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The pairs: lines of source, tab, the teacher's translation.")
    ],
    model: ModelOption = None,
    references: Annotated[
        Path | None,
        typer.Option(help="Translations of the text: of the teacher's best, the one most like it is taken."),
    ] = None,
    beam: Annotated[int | None, typer.Option(help="Hypotheses kept; 1 is greedy.")] = None,
    tag: TagOption = "",
    device: DeviceOption = "auto",
    engine: Annotated[str, typer.Option(help="auto, torch or ctranslate2.")] = "auto",
    compute: ComputeOption = "auto",
) -> None:
    """Make training pairs for a small model of a large one's translations. Killed, it goes on where it was; torchrun spreads it."""
    with whole_imports():
        from regard.cli.synthesise import run_synthesise

    given = {} if beam is None else {"beam": beam}
    run_synthesise("distil", text, out, model, references, given, tag, device, engine, compute)


def shortlist(
    model: Annotated[Path, typer.Option("--model", "-m", help="The run folder of a translator.")],
    each: Annotated[int, typer.Option(help="Most target tokens for each source token.")] = 80,
    always: Annotated[int, typer.Option(help="How many of the most frequent target tokens are always allowed.")] = 600,
    remove: Annotated[bool, typer.Option("--remove", help="Take the lists away again.")] = False,
) -> None:
    """Make translating on a CPU faster: learn which target tokens each source token may become, and score only those."""
    with whole_imports():
        from regard.cli.shortlist import run_shortlist

    run_shortlist(model, each, always, remove)
