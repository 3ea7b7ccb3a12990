"""``preflearn ppi``: protein-protein interactions from parsed sentences.

A corpus is unified XML with dependency parses, or CoNLL-U with ``--entities`` (and ``--pairs`` where labels are
needed); plain or compressed.
"""

from __future__ import annotations

import json
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from preflearn.cli.output import was_typed

from . import command_group

if TYPE_CHECKING:
    from ..ppi import Candidates
    from ..ppi.representation import Candidate

app = command_group("ppi", "Protein-protein interactions from parsed sentences.")


class KernelName(StrEnum):
    all_paths = "all-paths"
    weisfeiler_lehman = "weisfeiler-lehman"
    sum = "sum"


class Aggregate(StrEnum):
    max = "max"
    sum = "sum"


class Learner(StrEnum):
    rls = "rls"
    rankrls = "rankrls"


CorpusPath = Annotated[Path, typer.Argument(metavar="CORPUS", help="XML or CoNLL-U, plain or compressed.")]
EntitiesOption = Annotated[
    Path | None, typer.Option("--entities", help="Table of protein names for CoNLL-U.")
]
PairsOption = Annotated[Path | None, typer.Option("--pairs", help="Table of labelled pairs for CoNLL-U.")]
ParserOption = Annotated[str | None, typer.Option("--parser", help="Which parse of the XML to use.")]
EnhancedOption = Annotated[bool, typer.Option("--enhanced", help="Use the enhanced dependencies of CoNLL-U.")]
SkipBadOption = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out and list what cannot be used instead of stopping.")
]
KernelOption = Annotated[KernelName, typer.Option("--kernel", help="Kernel between candidates.")]
AggregateOption = Annotated[
    Aggregate, typer.Option("--aggregate", help="For all-paths: largest or summed weight of a label pair.")
]
LearnerOption = Annotated[Learner, typer.Option("--learner", help="Sparse RLS or sparse RankRLS.")]
BasisOption = Annotated[int, typer.Option("--n-basis", min=1, help="Maximum number of basis vectors.")]
SeedOption = Annotated[int, typer.Option("--seed", min=0, help="Random seed for splits and basis vectors.")]
JsonOption = Annotated[Path | None, typer.Option("--json", help="Write all figures to this file.")]
PlotOption = Annotated[Path | None, typer.Option("--plot", help="Draw the figures (.svg, .png, .pdf).")]


@app.command()
def evaluate(
    context: typer.Context,
    corpus: CorpusPath,
    folds: Annotated[int, typer.Option(min=2, help="Folds of documents.")] = 10,
    splits: Annotated[int, typer.Option(min=1, help="Random splits of the documents into folds.")] = 1,
    curve: Annotated[
        bool, typer.Option("--curve", help="A learning curve instead of cross-validation.")
    ] = False,
    kernel: KernelOption = KernelName.all_paths,
    aggregate: AggregateOption = Aggregate.max,
    learner: LearnerOption = Learner.rls,
    n_basis: BasisOption = 4000,
    seed: SeedOption = 0,
    entities: EntitiesOption = None,
    pairs: PairsOption = None,
    parser: ParserOption = None,
    enhanced: EnhancedOption = False,
    skip_bad: SkipBadOption = False,
    json_file: JsonOption = None,
    plot: PlotOption = None,
) -> None:
    """Cross-validate by document: precision, recall, F and AUC with their spread."""
    from .. import ppi

    _refuse_unused(context)
    _require_writable(json_file, plot)
    data = _read(corpus, entities, pairs, parser, enhanced, skip_bad)
    common: dict[str, Any] = {
        "kernel": kernel.value,
        "aggregate": aggregate.value,
        "settings": ppi.Settings(learner=learner.value, n_basis=n_basis, random_state=seed),
        "n_splits": splits,
        "random_state": seed,
        "n_jobs": -1,
        "progress": _tell,
    }
    if curve:
        _finish(ppi.learning_curve(data, **common), json_file, plot)
    else:
        _finish(ppi.evaluate(data, n_folds=folds, **common), json_file, plot)


@app.command()
def cross(
    context: typer.Context,
    corpora: Annotated[list[Path], typer.Argument(metavar="CORPUS...", help="Two or more XML corpora.")],
    kernel: KernelOption = KernelName.all_paths,
    aggregate: AggregateOption = Aggregate.max,
    learner: LearnerOption = Learner.rls,
    n_basis: BasisOption = 4000,
    seed: SeedOption = 0,
    parser: ParserOption = None,
    skip_bad: SkipBadOption = False,
    json_file: JsonOption = None,
    plot: PlotOption = None,
) -> None:
    """Train on each corpus and test on every other: AUC, and F at three thresholds."""
    from .. import ppi

    _refuse_unused(context)
    _require_writable(json_file, plot)
    data = [_read(path, None, None, parser, False, skip_bad) for path in corpora]
    settings = ppi.Settings(learner=learner.value, n_basis=n_basis, random_state=seed)
    result = ppi.cross_corpus(
        data, kernel=kernel.value, aggregate=aggregate.value, settings=settings, n_jobs=-1, progress=_tell
    )
    _finish(result, json_file, plot)


@app.command()
def train(
    context: typer.Context,
    corpus: CorpusPath,
    output: Annotated[Path, typer.Option("--output", "-o", help="File for the model.")],
    kernel: KernelOption = KernelName.all_paths,
    aggregate: AggregateOption = Aggregate.max,
    learner: LearnerOption = Learner.rls,
    n_basis: BasisOption = 4000,
    seed: SeedOption = 0,
    entities: EntitiesOption = None,
    pairs: PairsOption = None,
    parser: ParserOption = None,
    enhanced: EnhancedOption = False,
    skip_bad: SkipBadOption = False,
) -> None:
    """Train an extractor on a labelled corpus; alpha and threshold by leave-one-document-out."""
    from preflearn.io import save_model

    from ..ppi import InteractionExtractor

    _refuse_unused(context)
    _require_writable(output)
    data = _read(corpus, entities, pairs, parser, enhanced, skip_bad)
    model = InteractionExtractor(
        kernel=kernel.value,
        aggregate=aggregate.value,
        learner=learner.value,
        n_basis=n_basis,
        random_state=seed,
        n_jobs=-1,
    )
    _tell(f"learning from {len(data)} candidates")
    model.fit(data.graphs, data.labels, documents=data.documents)
    save_model(model, output, metadata={"corpus": data.name, "candidates": len(data)})
    typer.echo(
        f"{output}: learned from {data!r}; alpha {model.alpha_:g}, threshold {model.threshold_:.4f} "
        f"(leave-one-document-out F {100 * model.held_out_f_:.1f}, the value that the threshold was chosen by)"
    )


@app.command()
def extract(
    model_file: Annotated[Path, typer.Argument(metavar="MODEL", help="A model file written by `ppi train`.")],
    sentences: Annotated[
        Path, typer.Argument(metavar="SENTENCES", help="Parsed sentences with protein names.")
    ],
    threshold: Annotated[
        float | None, typer.Option(help="Use this threshold instead of the trained one.")
    ] = None,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also show pairs that are not called interactions.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON object per line instead of text.")
    ] = False,
    entities: EntitiesOption = None,
    parser: ParserOption = None,
    enhanced: EnhancedOption = False,
    skip_bad: SkipBadOption = False,
) -> None:
    """Show the pairs of proteins that a trained extractor calls interactions, best first in each sentence."""
    from preflearn.io import load_model

    from ..ppi import InteractionExtractor

    model = load_model(model_file)
    if not isinstance(model, InteractionExtractor):
        raise ValueError(
            f"{model_file} holds a {type(model).__name__}: expected a model written by `preflearn ppi train`."
        )
    data = _read(sentences, entities, None, parser, enhanced, skip_bad)
    scores = model.decision_function(data.graphs)
    limit = model.threshold_ if threshold is None else threshold
    shown = [
        (item, float(score), bool(score > limit))
        for item, score in zip(data.items, scores, strict=True)
        if show_all or score > limit
    ]
    shown.sort(key=lambda row: -row[1])
    place = {
        id(sentence): number
        for number, sentence in enumerate(_distinct(item.sentence for item in data.items))
    }
    shown.sort(key=lambda row: place[id(row[0].sentence)])
    if as_json:
        for item, score, called in shown:
            typer.echo(json.dumps(_as_object(item, score, called)))
        return
    _print_pairs(shown, len(data), int((scores > limit).sum()), limit)


def _read(
    path: Path,
    entities: Path | None,
    pairs: Path | None,
    parser: str | None,
    enhanced: bool,
    skip_bad: bool,
) -> Candidates:
    from ..ppi import candidates, read_conllu_corpus, read_corpus

    if entities is not None:
        if parser is not None:
            raise ValueError(
                "--parser would be ignored: it chooses a parse of an XML corpus, and --entities means CoNLL-U."
            )
        corpus = read_conllu_corpus(path, entities, pairs, enhanced=enhanced, skip_bad=skip_bad)
    elif pairs is not None or enhanced:
        raise ValueError("--pairs and --enhanced go with CoNLL-U and need --entities.")
    elif re.search(r"\.conllu?(\.\w+)?$", path.name):
        raise ValueError(f"{path}: a CoNLL-U file holds no protein names; give their table with --entities.")
    else:
        corpus = read_corpus(path, parser=parser, skip_bad=skip_bad)
    data = candidates(corpus, skip_bad=skip_bad)
    if data.skipped:
        _tell(f"{path}: left out {len(data.skipped)}:")
        for message in data.skipped:
            _tell(f"  {message}")
    if not len(data):
        raise ValueError(f"{path}: no sentence has a candidate pair.")
    return data


def _refuse_unused(context: typer.Context) -> None:
    """Raise ValueError for options that the others make meaningless."""
    if context.params["kernel"] is KernelName.weisfeiler_lehman and was_typed(context, "aggregate"):
        raise ValueError(
            "--aggregate is for paths, and would be ignored by --kernel weisfeiler-lehman: leave it out."
        )
    if context.params.get("curve") and was_typed(context, "folds"):
        raise ValueError("--folds would be ignored by --curve, which splits by size: leave it out.")


def _require_writable(*outputs: Path | None) -> None:
    from preflearn.tables.atomic import require_writable

    for path in filter(None, outputs):
        require_writable(path)


def _tell(line: str) -> None:
    """Progress goes to stderr, results to stdout."""
    print(line, file=sys.stderr, flush=True)


def _finish(result: Any, json_file: Path | None, plot: Path | None) -> None:
    from ..ppi import save_results

    typer.echo(str(result))
    if json_file is not None:
        save_results(result, json_file)
    if plot is not None:
        import matplotlib

        matplotlib.use("Agg")
        axes = result.plot()
        axes.figure.savefig(plot, bbox_inches="tight")


def _distinct(sentences: Any) -> list[Any]:
    return list({id(sentence): sentence for sentence in sentences}.values())


def _as_object(item: Candidate, score: float, called: bool) -> dict[str, Any]:
    return {
        "document": item.sentence.document,
        "sentence": item.sentence.id,
        "text": item.sentence.text,
        "pair": item.pair.id,
        "first": item.first,
        "second": item.second,
        "score": score,
        "interaction": called,
    }


def _print_pairs(
    shown: list[tuple[Candidate, float, bool]], n_pairs: int, n_called: int, limit: float
) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    before = None
    for item, score, called in shown:
        if item.sentence is not before:
            before = item.sentence
            console.print(
                Text(f"\n{item.sentence.id}  ", style="bold").append(item.sentence.text, style="not bold")
            )
        mark = "interaction" if called else "-"
        line = Text(f"  {score:+.3f}  {mark:12}", style="green" if called else "dim")
        console.print(line.append(f"{item.first} - {item.second}"))
    console.print(f"\n{n_called} of {n_pairs} pairs called interactions (score over {limit:.4f})")
