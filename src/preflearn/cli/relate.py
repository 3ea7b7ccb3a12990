"""``preflearn relate``: a relation between two kinds of objects from three tables; ``predict`` for its models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ..auto.training.options import KernelName
from ..progress import Stages
from . import files
from .output import (
    collected_warnings,
    new_console,
    print_json,
    print_notes,
    print_table,
    progress,
    refuse_both,
    typed,
    write_stdout,
)
from .settings import LEARNING, JsonOption, QuietOption, SetOption, VerboseOption, read_settings

SETTINGS = {
    "entries": ("the pair", "single labels"),
    "rows": ("the row object", "all labels of a row"),
    "columns": ("the column object", "all labels of a column"),
    "both": ("both objects", "a row and a column"),
}
COMMAND = "train relation"  # as model files have it


class Duplicates(StrEnum):
    """What to do with pairs that are labelled twice."""

    refuse = "refuse"
    mean = "mean"


class HoldOut(StrEnum):
    """What will be new when the model is used."""

    entries = "entries"
    rows = "rows"
    columns = "columns"
    both = "both"


def relate(
    context: typer.Context,
    rows: Annotated[
        Path, typer.Option("--rows", metavar="FILE", help="Table of row objects: name and features.")
    ],
    columns: Annotated[
        Path, typer.Option("--columns", metavar="FILE", help="Table of column objects: name and features.")
    ],
    pairs: Annotated[
        Path, typer.Option("--pairs", metavar="FILE", help="Table of row object, column object, label.")
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="File for the model. Default: the name of --pairs with .preflearn."
        ),
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", help="Write an HTML report to this file.")
    ] = None,
    drop: files.DropOption = None,
    duplicates: Annotated[
        Duplicates,
        typer.Option("--duplicates", help="Pairs that are labelled twice: refuse them, or take the mean."),
    ] = Duplicates.refuse,
    hold_out: Annotated[
        HoldOut, typer.Option("--hold-out", help="What will be new when the model is used.")
    ] = HoldOut.entries,
    kernel: Annotated[
        KernelName, typer.Option("--kernel", help="Kernel for both kinds of objects; auto: RBF.")
    ] = KernelName.auto,
    settings: SetOption = None,
    force: files.ForceOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
    verbose: VerboseOption = False,
) -> None:
    """Learn the labels of pairs of objects; choose alpha for what will be new, and show all four cases."""
    refuse_both(quiet, as_json, "--json")
    refuse_both(quiet, verbose, "--verbose")
    given = read_settings("--set", settings, LEARNING, ["gamma", "alphas"])
    sources = [rows, columns, pairs]
    output = output or files.default_output(pairs, sources, force)
    files.check_outputs([output, report], sources, force)
    with progress(3 + len(SETTINGS), quiet=quiet, verbose=verbose) as tell, collected_warnings() as warned:
        tell("reading " + ", ".join(path.name for path in sources))
        name = "rbf" if kernel is KernelName.auto else kernel.value
        work = _Relation(
            sources, name, given.get("gamma"), given.get("alphas", "auto"), hold_out.value,
            files.split_names(drop, "--drop") or (), duplicates.value,
        )  # fmt: skip
        found = work.settings(tell)
        tell("training")
        model, metadata = work.train()
        tell("writing")
        _write(work, model, found, metadata, output, report, typed(context))
    if as_json:
        print_json(_as_object(work, model, found, warned, output, report))
    elif not quiet:
        _show(work.summary, found, warned, output, report)


def _write(
    work: _Relation,
    model: Any,
    settings: list[Any],
    metadata: dict[str, Any],
    output: Path,
    report: Path | None,
    command: str,
) -> None:
    """The page is made before anything is written, so that a failure leaves nothing behind."""
    from ..tables.atomic import write_whole
    from ..tables.models.files import save_model

    page = None if report is None else work.page(settings, command).encode()
    save_model(model, output, metadata={**metadata, "settings": [vars(row) for row in settings]})
    if report is not None and page is not None:
        write_whole(report, page)


def _as_object(
    work: _Relation, model: Any, settings: list[Any], notes: list[str], output: Path, report: Path | None
) -> dict[str, Any]:
    return {
        "data": work.summary,
        "alpha": work.learned.alpha_,
        "hold_out": work.setting,
        "settings": [vars(row) for row in settings],
        "notes": notes,
        "model": str(output),
        "report": None if report is None else str(report),
    }


class _Relation:
    """The tables, standardised, with the search for one setting."""

    def __init__(
        self,
        sources: list[Path],
        kernel: str,
        gamma: float | None,
        alphas: Any,
        setting: str,
        drop: tuple[str, ...] = (),
        duplicates: str = "refuse",
    ) -> None:
        import numpy as np

        from ..relations.inputs import read_pair_list
        from ..tables.preferences import read_relation

        self.sources, self.alphas, self.setting, self.duplicates = sources, alphas, setting, duplicates
        self.tables = tables = read_relation(*sources, drop=drop)
        self._refuse_by_name()
        self._prepare()
        self.kernels: dict[str, Any] = {"row_kernel": kernel, "column_kernel": kernel}
        if kernel == "rbf":
            params = {"gamma": "median" if gamma is None else gamma}
            self.kernels |= {"row_params": params, "column_params": params}
        elif gamma is not None:
            raise ValueError(f"--set gamma would be ignored by --kernel {kernel}: leave it out.")
        p, q = len(tables.rows.names), len(tables.columns.names)
        self.labels = read_pair_list(
            tables.row_index, tables.column_index, tables.y, duplicates, shape=(p, q)
        )
        row, column, y = self.labels
        self.Y = np.full((p, q), np.nan)
        self.Y[row, column] = y
        known = f"{y.shape[0]:,} labels ({tables.label}), {y.shape[0] / (p * q):.0%} of all pairs"
        self.summary = f"{known} of {p:,} rows and {q:,} columns"

    def _refuse_by_name(self) -> None:
        """What the learner would refuse by the numbers of the objects."""
        import numpy as np

        from ..errors import InputError, Remedy

        found, pairs = self.tables, self.sources[2]
        sides = (found.rows.names, found.columns.names)
        places = (found.row_index, found.column_index)
        for path, names, index in zip(self.sources, sides, places):
            absent = np.setdiff1d(np.arange(len(names)), index)
            if absent.size:
                more = f" and {absent.size - 1:,} more have" if absent.size > 1 else " has"
                raise InputError(
                    f"{path}: {names[absent[0]]!r}{more} no label in {pairs}: leave out of the training what has "
                    "none, and predict it afterwards"
                )
        _, first, counts = np.unique(np.stack(places, axis=1), axis=0, return_index=True, return_counts=True)
        again = np.flatnonzero(counts > 1)
        if again.size and self.duplicates == "refuse":
            k = int(first[again[0]])
            row, column = (str(names[index[k]]) for names, index in zip(sides, places))
            same = (places[0] == places[0][k]) & (places[1] == places[1][k])
            labels = ", ".join(f"{value:g}" for value in found.y[same][:4].tolist())
            many = "1 pair is" if again.size == 1 else f"{again.size:,} pairs are"
            raise InputError(
                f"{pairs}: {many} labelled more than once, such as {row!r} and {column!r} ({labels}): list each once",
                Remedy("duplicates", "mean", "to learn from the mean of its labels"),
            )

    def _prepare(self) -> None:
        """The objects as standardised numbers; tables of anything but numbers by an encoder that the model keeps."""
        from ..relations.tables import prepared

        sides = (self.tables.rows, self.tables.columns)
        self.steps: Any = None
        self.objects: Any
        self.scaling: Any
        if all(side.X is not None for side in sides):
            self.scaling = tuple(_scaling(side) for side in sides)
            self.objects = tuple(scaled(side.X, how) for side, how in zip(sides, self.scaling))
            return
        self.scaling = tuple({"table": side.feature_names} for side in sides)
        self.steps = tuple(prepared(side.columns) for side in sides)
        self.objects = tuple(step.transform(side.columns) for step, side in zip(self.steps, sides))

    def search(self, setting: str) -> Any:
        """The model with alpha chosen for a setting."""
        from ..relations import KroneckerRLSCV

        model = KroneckerRLSCV(self.alphas, hold_out=setting, keep_predictions=True, **self.kernels)
        (rows, columns), (row, column, y) = self.objects, self.labels
        return model.fit_pairs_of(rows, columns, row, column, y)

    def settings(self, tell: Callable[[str], None]) -> list[Any]:
        import numpy as np

        from ..metrics import concordance
        from ..model_selection.evaluation import means_in_order, relation_interval
        from ..report.relation import SettingRow

        rows = []
        row, column, y = self.labels
        for setting, (new, how) in SETTINGS.items():
            stage = f"predictions with {how} held out"
            tell(stage)
            with Stages.told_to(lambda text, stage=stage: tell(f"{stage}: {text}")):  # type: ignore[misc]
                model = self.search(setting)
            best = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
            F = model.cv_predictions_[best][row, column]
            if setting == self.setting:
                self.chosen = model
            fitted = model.predict_pairs_of(*self.objects, row, column)
            rows.append(
                SettingRow(
                    new,
                    how,
                    float(concordance(y, F)),
                    float(np.mean((y - F) ** 2)),
                    float(model.alpha_),
                    setting == self.setting,
                    relation_interval(row, column, y, F, fitted),
                    means_in_order(row, column, self.Y, setting),
                )
            )
        return rows

    def train(self) -> tuple[Any, dict[str, Any]]:
        model = self.chosen
        model.cv_predictions_ = None  # as large as the relation, for every alpha
        self.learned = model
        if self.steps is not None:
            from ..relations.tables import TableRelation

            model = TableRelation(model, *self.steps)
        metadata = {
            "command": COMMAND,
            "files": [vars(one) for one in files.describe_files(self.sources)],
            "rows": self.scaling[0],
            "columns": self.scaling[1],
            "label": self.tables.label,
        }
        return model, metadata

    def page(self, settings: list[Any], command: str) -> str:
        from ..report.relation import render_relation_report

        title = f"Relation of {self.sources[0].name} and {self.sources[1].name}"
        F = self.learned.predict(*self.objects)
        names = (self.tables.rows.names.tolist(), self.tables.columns.names.tolist())
        return render_relation_report(
            title, self.summary, settings, self.Y, F, command=command, names=names, label=self.tables.label
        )


def is_relation(path: Path) -> bool:
    """Whether a model file holds a relation."""
    from ..tables.models.files import model_info

    return model_info(path)["metadata"].get("command") == COMMAND


def predict_relation(model_file: Path, data: list[Path], output: Path | None, quiet: bool) -> None:
    """Scores of every pair of two tables of objects, or of the pairs that a third lists, as CSV: row, column, score."""
    import numpy as np

    from ..tables.preferences import read_pairs

    if len(data) not in (2, 3):
        raise ValueError(
            f"{model_file.name} is a relation: preflearn predict {model_file} ROWS COLUMNS scores every pair of two "
            f"tables of objects, preflearn predict {model_file} ROWS COLUMNS PAIRS those that the third lists; found "
            f"{len(data)} {'file' if len(data) == 1 else 'files'}."
        )
    if output is not None and output.suffix.lower() != ".csv":
        raise ValueError(f"-o {output}: scores of pairs are written as .csv: give this suffix.")
    model, objects, tables = _loaded(model_file, data[:2])
    if len(data) == 2:
        F = model.predict(*objects)
        places, scores = tuple(np.indices(F.shape).reshape(2, -1)), F.ravel()
    else:
        places = read_pairs(data[2], tables, data[:2])
        scores = model.predict_pairs_of(*objects, *places)
    _write_scores(scores, [table.names[index] for table, index in zip(tables, places)], output, quiet)


def _loaded(model_file: Path, data: list[Path]) -> tuple[Any, list[Any], list[Any]]:
    """The model, two tables of objects as it takes them, and the tables."""
    from ..tables.models.files import load_model, model_info
    from ..tables.preferences import read_objects

    model, metadata = load_model(model_file), model_info(model_file)["metadata"]
    tables = [read_objects(path) for path in data]
    if "table" in metadata["rows"]:
        return model, [table.columns for table in tables], tables
    objects = []
    for table, side, path in zip(tables, ("rows", "columns"), data, strict=True):
        if table.feature_names != metadata[side]["features"]:
            raise ValueError(
                f"{path}: the features are not those of the training {side}: found "
                f"{', '.join(table.feature_names[:6])}, expected {', '.join(metadata[side]['features'][:6])}."
            )
        objects.append(scaled(table.X, metadata[side]))
    return model, objects, tables


def evaluate_relation(model_file: Path, data: list[Path], as_json: bool) -> None:
    """The model of a relation on labels that are known: rows, columns and pairs, as in the training."""
    from ..model_selection import evaluate_scores
    from ..model_selection.evaluation import relation_interval
    from ..tables.preferences import read_relation

    if len(data) != 3:
        raise ValueError(
            f"{model_file.name} is a relation: evaluate it on three tables, preflearn evaluate {model_file} ROWS "
            f"COLUMNS PAIRS; found {len(data)}."
        )
    found = read_relation(*data)
    model, objects, _ = _loaded(model_file, data[:2])
    scores = model.predict_pairs_of(*objects, found.row_index, found.column_index)
    result = evaluate_scores(found.y, scores, metrics=["concordance", "kendall_tau"])
    concordance = replace(
        result.metrics[0],
        interval=relation_interval(found.row_index, found.column_index, found.y, scores),
        interval_method="placement values with rows and columns as clusters, in Wilson's form",
    )
    result = replace(result, metrics=(concordance, *result.metrics[1:]))
    if as_json:
        print_json({"model": str(model_file), **result.to_dict()})
        return
    new_console().print(f"{model_file.name} on {found.y.shape[0]:,} labels ({found.label})", markup=False)
    new_console().print(str(result), markup=False)


def _write_scores(scores: Any, names: list[Any], output: Path | None, quiet: bool) -> None:
    from ..tables.atomic import write_whole
    from ..tables.writing import csv_text

    text = csv_text(["row", "column", "score"], zip(*names, map(repr, scores.tolist())))
    if output is None:
        write_stdout(text)
        return
    write_whole(output, text)
    if not quiet:
        new_console().print(f"Wrote {len(scores):,} scores to {output}.", markup=False)


def _scaling(table: Any) -> dict[str, list[Any]]:
    import numpy as np

    spread = table.X.std(axis=0)
    return {
        "features": list(table.feature_names),
        "mean": table.X.mean(axis=0).tolist(),
        "scale": np.where(spread > 0, spread, 1.0).tolist(),
    }


def scaled(X: Any, how: dict[str, list[Any]]) -> Any:
    """Features with mean 0 and variance 1 in the training."""
    import numpy as np

    return (X - np.array(how["mean"])) / np.array(how["scale"])


def _show(summary: str, settings: list[Any], notes: list[str], output: Path, report: Path | None) -> None:
    from rich.text import Text

    console = new_console()
    console.print(Text(summary, style="bold"))
    print_table(
        console,
        ("what is new", "concordance", "95 % interval", "row, column means", "squared error", "best alpha"),
        [
            (
                one.new,
                f"{one.concordance:.4f}",
                f"{one.interval[0]:.4f} to {one.interval[1]:.4f}",
                f"{one.baseline:.4f}",
                f"{one.error:.4g}",
                f"{one.alpha:.3g}",
            )
            for one in settings
        ],
        title="Held-out predictions in four settings",
        bold=[k for k, one in enumerate(settings) if one.chosen],
    )
    (chosen,) = (one.new for one in settings if one.chosen)
    console.print(
        Text(f"The model was chosen for what is new: {chosen} (--hold-out chooses another setting).")
    )
    print_notes(console, notes)
    console.print(Text(f"Wrote {output}" + ("" if report is None else f" and {report}") + "."))
