"""Model files, how the data of a model are read, and the scores of models and score files."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .files import Reading, column_names, describe_files, listed, without_labels
from .output import collected_warnings

if TYPE_CHECKING:
    import numpy as np

    from ..tables.data import TableData
    from ..tables.encoding.table import TableEncoder

# Columns of texts to put in order, by the names that they usually have.
TEXT_NAMES = ("text", "answer", "response", "completion", "output", "candidate")


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows for a model: what it predicts from, and what is known about them.

    Attributes
    ----------
    X : matrix, or mapping from names to columns
    y, qid, item_names : ndarrays of shape (m,) or None
        With --event y is a structured array of events and times.
    query, item, text : str or None
        The names of these columns; of texts where X is one column of them.
    brief : str
        The rows in one line.
    kept, left_out
        As in `preflearn.tables.data.TableData`.
    clusters : ndarray of shape (m,) or None
        The column of --group.
    """

    X: Any
    y: np.ndarray | None
    qid: np.ndarray | None
    item_names: np.ndarray | None
    query: str | None
    item: str | None
    brief: str
    text: str | None = None
    kept: np.ndarray | None = None
    left_out: str = ""
    clusters: np.ndarray | None = None

    @property
    def n_read(self) -> int:
        """Rows of the files."""
        return len(self) if self.kept is None else self.kept.size

    def of_kept(self, scores: np.ndarray) -> np.ndarray:
        """The scores of these rows among those of all rows of the files."""
        return scores if self.kept is None else scores[self.kept]

    def __len__(self) -> int:
        return self.X.shape[0] if hasattr(self.X, "shape") else len(next(iter(self.X.values())))


def read_known(ranker: Path, paths: Sequence[Path], reading: Reading) -> Rows:
    """The targets and queries of a file, read as the model's training data were where there is a model."""
    from ..tables.ranking import read_ranking
    from ..tables.table import read_table

    if is_model(ranker):
        with collected_warnings():  # reported when the rows are scored
            return read_for(ranker, load(ranker), paths, reading, with_target=True)
    names = [str(path) for path in paths]
    if not reading.is_table(paths[0]):
        found = read_ranking(names, **reading.of_letor())
        return Rows(found.X, found.y, found.qid, found.item_names, None, None, found.in_brief())
    return _rows_of(read_table(names, **reading.of_table()), reading)


def _rows_of(table: TableData, reading: Reading) -> Rows:
    from ..comparisons import encode_queries
    from ..comparisons.inputs import surv

    table, clusters = without_labels(table, reading)
    brief = table.in_brief()
    if clusters is not None:
        brief += f", {encode_queries(clusters, len(clusters)).n_groups:,} groups (`{reading.group}`)"
    y = table.y if table.y is None or table.events is None else surv(table.y, table.events)
    return Rows(
        table.columns, y, table.qid, table.item_names, table.query, table.item, brief,
        kept=table.kept, left_out=table.left_out, clusters=clusters,
    )  # fmt: skip


def read_for(
    model_file: Path, saved: Saved, paths: Sequence[Path], reading: Reading, *, with_target: bool
) -> Rows:
    """Read new data as the training data of a model were read.

    Raises
    ------
    ValueError
        If columns of the training are not there; all of them are named.
    """
    from ..tables.ranking import read_ranking
    from ..tables.table import read_table

    names = [str(path) for path in paths]
    memory, table = saved.memory, reading.is_table(paths[0])
    if memory["kind"] == "texts":
        return _read_candidates(model_file, names, reading)
    if table != (memory["kind"] == "table"):
        trained_on = "a table with named columns" if not table else "a LETOR file with numbered features"
        raise ValueError(
            f"{paths[0]}: {model_file} was trained on {trained_on}, and this is of the other kind: give a file "
            "like the one it was trained on."
        )
    unknown: dict[str, Any] = {} if with_target else {"target": None}
    if not table:
        n_features = len(memory["features"])
        layout = memory.get("sparse", "auto")
        found = read_ranking(names, **reading.of_letor(n_features=n_features, sparse=layout, **unknown))
        return Rows(found.X, found.y, found.qid, found.item_names, None, None, found.in_brief())
    known = column_names(paths[0], reading)
    # Scores need no event, and a feature may say it.
    reading = (
        _with_event(reading, memory.get("event"), known) if with_target else replace(reading, event=None)
    )
    taken = (None, reading.target, reading.query, *(reading.drop or ()))
    if (
        with_target
        and reading.group is None
        and (group := memory.get("group")) in known
        and group not in taken
    ):
        reading = replace(reading, group=group)  # rows that depended on each other in training still do
    reading.check_labels(paths[0], known)
    arguments = _as_in_training(paths[0], known, model_file, saved, reading)
    if (
        with_target
        and arguments["target"] == "auto"
        and memory["target"] is not None
        and "target" not in known
    ):
        raise ValueError(
            f"{paths[0]}: {model_file.name} was trained on the target {memory['target']!r}, which is not there; found "
            f"{listed(known)}. Pass --target COLUMN."
        )
    if arguments["query"] is None and memory["query"] is not None and reading.query is not None:
        _require_queries(paths[0], known, model_file, saved, with_target)
    if not with_target and arguments["query"] is None:
        arguments.pop("on_bad", None)  # no row is bad
    return _rows_of(read_table(names, **{**arguments, **unknown}), reading)


def _with_event(reading: Reading, trained: str | None, known: list[str]) -> Reading:
    """The event column of the training, where none is named."""
    if reading.event is not None or trained is None:
        return reading
    event, _, seen = trained.partition("=")
    if event not in known:
        raise ValueError(
            f"The model was trained with --event {trained}, a column that is not there; found {listed(known)}. Pass "
            "--event COLUMN."
        )
    return replace(reading, event=event, seen=seen or None)


def _read_candidates(model_file: Path, names: list[str], reading: Reading) -> Rows:
    """Texts to put in order: one column, and the prompts that they answer as queries where there are any."""
    from ..tables.table import read_table

    if reading.drop:
        raise ValueError(
            f"--drop would be ignored with {model_file.name}, which puts texts in order: leave it out."
        )
    known = column_names(Path(names[0]), reading)
    text = reading.text or next((name for name in TEXT_NAMES if name in known), None)
    if text is None or text not in known:
        raise ValueError(
            f"{names[0]}: {model_file.name} puts texts in order: which column holds them? Found {listed(known)}. Pass "
            "--text COLUMN, or --chosen COLUMN --rejected COLUMN for pairs of them."
        )
    query = reading.query
    if query == "auto":
        query = next((name for name in ("qid", "query", "prompt") if name in known and name != text), None)
    roles = {"target": None, "query": query, "features": [text], "drop": None, "texts": [text]}
    item = next((name for name in ("item", "id") if name in known and name not in (text, query)), None)
    table = read_table(
        names, **reading.of_table(**roles, item=item if reading.item == "auto" else reading.item)
    )
    found = _rows_of(table, reading)
    return replace(found, X=table.columns[text], text=text)


def _as_in_training(
    path: Path, names: list[str], model_file: Path, saved: Saved, reading: Reading
) -> dict[str, Any]:
    """Arguments of `preflearn.io.read_table` for new data of a model."""
    memory, encoder = saved.memory, saved.encoder
    assert encoder is not None
    needed = list(encoder.encoders_)
    require_features(path, names, model_file, saved)
    roles = {role: _role(role, memory, names, reading) for role in ("target", "query", "item")}
    for name in reading.drop or ():
        if name not in names:
            raise ValueError(f"{path}: --drop asks for column {name!r}, found {listed(names)}.")
        if name in needed:
            raise ValueError(
                f"{path}: --drop {name} would remove a column that {model_file.name} predicts from."
            )
    if roles["query"] == "auto" and not {"qid", "query"} & {*names}:
        roles["query"] = None
    new = [name for name in names if name not in {*memory["columns"], *roles.values(), *(reading.drop or ())}]
    usual_labels = {"target", "qid", "query", "item"}
    new = [name for name in new if name not in usual_labels and name not in needed]
    if new:
        warnings.warn(f"{path}: not in the training data, and ignored: {listed(new)}.", stacklevel=2)
    texts = [name for name, kind in encoder.kinds_.items() if kind in ("category", "text", "words")]
    more = {**roles, "features": tuple(needed), "drop": None, "texts": [one for one in texts if one in names]}
    return reading.of_table(**more)


def require_features(path: Path, names: Sequence[str], model_file: Path, saved: Saved) -> None:
    """Refuse a table without columns that a model predicts from; all of them are named."""
    assert saved.encoder is not None
    absent = [name for name in saved.encoder.encoders_ if name not in names]
    if not absent:
        return
    usual = {*saved.memory["columns"], "target", "qid", "query", "item"}
    others = [name for name in names if name not in usual]
    instead = f" Found instead: {listed(others)}." if others else f" Found {listed(names)}."
    raise ValueError(
        f"{path}: these are not the features of {model_file.name}: {listed(absent)} "
        f"{'is' if len(absent) == 1 else 'are'} missing.{instead} Rename or add what is missing, or train without it."
    )


def _require_queries(path: Path, names: list[str], model_file: Path, saved: Saved, with_target: bool) -> None:
    """Figures over queries, and features relative to them, need to know the queries."""
    if with_target or saved.needs_queries:
        raise ValueError(
            f"{path}: {model_file.name} was trained with the queries of column {saved.memory['query']!r}, which is "
            f"not there; found {listed(names)}. Pass --query COLUMN, or --no-query for one ranking of all rows."
        )


def _role(role: str, memory: dict[str, Any], names: Sequence[str], reading: Reading) -> str | None:
    from ..tables.options import split_label

    asked = getattr(reading, role)
    if asked != "auto":
        return asked
    if memory[role] is not None:
        return memory[role] if split_label(memory[role], names)[0] in names else "auto"
    return None if role == "query" else "auto"


@dataclass(frozen=True, eq=False)
class Saved:
    """A model of a file, and what it remembers.

    Attributes
    ----------
    model : fitted estimator
    metadata : dict
        Of the file, whoever wrote it.
    memory : dict
        How its training data were read.
    """

    model: Any
    metadata: dict[str, Any]
    memory: dict[str, Any]

    @property
    def encoder(self) -> TableEncoder | None:
        """What makes numbers of tables."""
        from ..tables.encoding.table import table_encoder

        return table_encoder(self.model)

    @property
    def needs_queries(self) -> bool:
        """Whether the score of a row depends on the other rows of its query."""
        from ..metrics.by_query import wants_qid

        return wants_qid(self.model)

    def predict(self, rows: Rows) -> np.ndarray:
        """Scores of rows."""
        import numpy as np

        from ..metrics.by_query import predict_scores

        # Without queries all rows are one query to a model that looks at queries.
        qid = np.zeros(len(rows), dtype=np.int64) if rows.qid is None and self.needs_queries else rows.qid
        return predict_scores(self.model, rows.X, qid)


def load(path: Path) -> Saved:
    """A model of `preflearn train` or `preflearn ask`, or any pipeline that takes tables."""
    from ..tables.encoding.table import table_encoder
    from ..tables.models.files import load_model, model_info

    model = load_model(path)
    metadata = dict(model_info(path)["metadata"])
    memory, encoder = metadata.get("reading"), table_encoder(model)
    if metadata.get("command") == "train" and memory:
        if memory["kind"] == "table" and encoder is None:
            raise ValueError(
                f"{path} was written by an older version, which kept the encoding of tables in a separate file: train "
                "it again."
            )
        return Saved(model, metadata, memory)
    if encoder is not None:
        memory = {
            "kind": "table",
            "target": None,
            "query": None,
            "item": None,
            "columns": list(encoder.kinds_),
        }
        return Saved(model, metadata, memory)
    if metadata.get("command") == "ask":
        raise ValueError(
            f"{path} orders items that had no features to learn from: it knows only those items and cannot score "
            "others."
        )
    raise ValueError(
        f"{path} holds a model that `preflearn train` did not write ({type(model).__name__}): how to read data for it "
        "is not known. Use it from Python with preflearn.io.load_model."
    )


def same_as_training(metadata: dict[str, Any], paths: Sequence[Path]) -> str | None:
    """A note where rows are those that a model was trained on."""
    trained = {one["sha256"] for one in metadata.get("files", ())}
    found = [one.name for one in describe_files(paths) if one.sha256 in trained]
    if not found:
        return None
    return (
        f"{', '.join(found)} is what the model was trained on: these figures are too optimistic. The held-out "
        f"{metadata['estimate']['measure']} from training is {metadata['estimate']['value']:.4f}."
    )


def scores_of_ranker(
    path: Path, data_paths: Sequence[Path], reading: Reading, n_rows: int | None = None
) -> tuple[np.ndarray, str | None]:
    """Scores by a model, or read from a file of scores; and a note."""
    import numpy as np

    from ..tables.writing import read_scores

    if is_model(path):
        saved, reading = load(path), replace(reading, group=None)
        rows = read_for(path, saved, data_paths, reading, with_target=False)
        scores = saved.predict(rows)
        if rows.kept is not None:  # rows without a query have no score
            every = np.full(rows.n_read, np.nan)
            every[rows.kept], scores = scores, every
        return scores, same_as_training(saved.metadata, data_paths)
    scores = read_scores(path)
    if n_rows is not None and scores.shape[0] != n_rows:
        raise ValueError(
            f"{path} has {scores.shape[0]:,} scores for {n_rows:,} rows of data: expected one each."
        )
    return scores, None


def is_model(path: Path) -> bool:
    """Whether a file is a model rather than a table of scores; models are archives."""
    if not path.exists():
        raise FileNotFoundError(f"There is no file {path}.")
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder: give the name of a model or of a file of scores.")
    with open(path, "rb") as file:
        return file.read(4) == b"PK\x03\x04" or path.suffix == ".preflearn"
