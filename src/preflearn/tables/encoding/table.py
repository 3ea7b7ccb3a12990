"""A table as it comes, into a numeric matrix: the first step of a pipeline that takes data frames."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ...numerics.memory import require_memory
from ...numerics.onnx_graph import ExportError, Graph, Value
from .columns import CategoryColumn, DateColumn, NumberColumn, Oddities, TextColumn, free_texts
from .frames import TEXT, Column, Table, read_table
from .kinds import FEATURES, ColumnSummary, Decision, TableSummary, TableWarning, decide, suggest

_COLUMNS = (CategoryColumn, DateColumn, NumberColumn, TextColumn)
_ALIASES = {"onehot": "category"}
_EXAMPLES = 3
# Names of columns that a message lists.
_MOST_LISTED = 12


class TableEncoder(TransformerMixin, BaseEstimator):
    """Turn a table with numbers, yes/no, categories, dates, texts and missing values into a numeric matrix.

    The kind of each column is found from its values and its name; ``summary_`` tells what was found and what became of
    it. As a step of a pipeline the encoder is saved with the model, which then takes data frames.

    Parameters
    ----------
    kinds : mapping from column name to kind, default=None
        Kinds that you know better: ``"number"``, ``"boolean"``, ``"category"`` (or ``"onehot"``), a list of categories,
        ``"date"``, ``"text"``, ``"words"`` or ``"words:N"`` (hashed words, N features), ``"drop"``.
    max_categories : int, default=30
        Categories of a column that get a feature of their own, the most frequent ones; the others share one.
    text_features : int, default=32
        Features of a text column: leading directions of its words, weighted by tf-idf.
    sparse_output : bool or "auto", default="auto"
        Return a CSR matrix. ``"auto"``: where a column has the kind ``"words"``.
    dtype : {"float64", "float32"}, default="float64"
        Type of the output.

    Attributes
    ----------
    summary_ : TableSummary
        The columns with their kinds, features and notes; prints itself.
    kinds_ : dict
        Kind of each column, ``"constant"``, ``"empty"``, ``"identifier"`` and ``"drop"`` for those set aside.
    encoders_ : dict
        What was learned about each column that is used.
    unseen_ : dict
        How many rows ``transform`` has met since ``fit`` with a category that ``fit`` did not see, by column.
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Where the columns have names.

    Notes
    -----
    How a kind is found, in short: texts that read as numbers ("1,234", "12%", "$5"), as yes/no or as dates are taken as
    such; other texts are a category when they repeat, text when they have several words, and an identifier otherwise.
    Whole numbers stay numbers, also few of them (grades, counts), unless the name says that they are labels ("region",
    "store_code", "type") or identifiers ("id", "key"). Constant, empty and identifier-like columns are set aside.

    ============  ==================================================================================================
    kind          features
    ============  ==================================================================================================
    number        the value, missing ones imputed by the median, infinite ones by the nearest finite value
    boolean       0 or 1, missing ones imputed by the more frequent value
    category      one per category; one for rarer ones together; a category not seen before counts as rare
    date          days since the oldest date, year, month, day, weekday, hour; those that vary
    text          ``text_features`` leading directions of tf-idf weighted words
    words         the tf-idf weighted words themselves, hashed
    ============  ==================================================================================================

    A column with missing values in training has one more feature that marks them. ``transform`` finds columns by name:
    their order does not matter, further columns are ignored, and those that are not there are all named in one error.
    What is odd but does not prevent a prediction (categories never seen, words in a column of numbers) is reported
    by a `TableWarning`, once for each column.

    O(cells), with no Python loop over rows for numbers; each distinct text of a column is looked at once.

    Examples
    --------
    >>> from preflearn.preprocessing import TableEncoder
    >>> table = {
    ...     "price": ["1,200", "950", None, "1,010"],
    ...     "colour": ["red", "blue", "red", "red"],
    ...     "sold": ["2024-03-01", "2024-03-05", "2024-03-05", "2024-03-02"],
    ... }
    >>> encoder = TableEncoder().fit(table)
    >>> encoder.kinds_
    {'price': 'number', 'colour': 'category', 'sold': 'date'}
    >>> encoder.get_feature_names_out()[:4].tolist()
    ['price', 'price=(missing)', 'colour=blue', 'colour=red']
    """

    def __init__(
        self, *, kinds=None, max_categories=30, text_features=32, sparse_output="auto", dtype="float64"
    ) -> None:
        self.kinds, self.max_categories, self.text_features = kinds, max_categories, text_features
        self.sparse_output, self.dtype = sparse_output, dtype

    def fit(self, X, y=None) -> Self:
        """Find the kind of each column and learn how to encode it.

        Parameters
        ----------
        X : data frame, array, list of rows, or mapping from names to columns
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ValueError
            With everything that is wrong with the table in one message.
        """
        self._fit(X)
        return self

    def fit_transform(self, X, y=None) -> Any:
        """Fit and transform the same table, reading it once.

        Parameters
        ----------
        X, y : as in fit

        Returns
        -------
        ndarray or csr_array of shape (m, n_features)
        """
        return self._assemble(self._fit(X))[0]

    def transform(self, X) -> Any:
        """Encode a table like that of ``fit``.

        Parameters
        ----------
        X : data frame, array, list of rows, or mapping from names to columns
            Columns in any order where they have names.

        Returns
        -------
        ndarray or csr_array of shape (m, n_features)

        Raises
        ------
        ValueError
            If columns are missing (all of them are named) or cannot be read.
        """
        check_is_fitted(self)
        columns, extra = self._matched(read_table(X))
        out, odd = self._assemble(columns)
        self._tell(odd, extra)
        return out

    def get_feature_names_out(self, input_features=None) -> np.ndarray:
        """Names of the features.

        Parameters
        ----------
        input_features : ignored
            For pipelines; the names are those of the table.

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        names = [name for column, encoder in self.encoders_.items() for name in encoder.names(column)]
        return np.asarray(names, dtype=object)

    @property
    def kinds_(self) -> dict[str, str]:
        """Kind of each column."""
        return self.summary_.kinds

    def _onnx_inputs(self) -> dict[str, str]:
        """The columns that an exported encoder takes."""
        texts = free_texts(self.encoders_)
        if texts:
            raise ExportError(
                f"Free text cannot be exported to ONNX, which has no operator that hashes words: column(s) "
                f"{', '.join(map(repr, texts))}. Train without them, TableEncoder(kinds={{{texts[0]!r}: 'drop'}}), or "
                "use `preflearn serve`."
            )
        return {name: one.onnx_input for name, one in self.encoders_.items()}

    def _onnx_values(self, X: Any) -> dict[str, np.ndarray]:
        """A table as the inputs of an exported encoder, of shape (m, 1) each."""
        columns, _ = self._matched(read_table(X))
        return {
            name: encoder.values(column)[:, None]
            for (name, encoder), column in zip(self.encoders_.items(), columns)
        }

    def _onnx_nodes(self, graph: Graph, columns: Mapping[str, Value]) -> Value:
        """What `transform` computes, recorded (`numerics.onnx_graph`)."""
        parts = (one.nodes(graph, columns[name]) for name, one in self.encoders_.items())
        return graph.concatenate([value for part in parts for value in part])

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded encoder is checked for (`tables.models.fitted`); its columns are checked for themselves."""
        if "encoders_" not in vars(self):
            return {}
        self._check_parameters()
        if not self.encoders_:
            raise ValueError("encoders_ is empty")
        if not isinstance(self.summary_, TableSummary) or len(self.kinds_) != self.n_features_in_:
            raise ValueError("summary_ does not describe each column")
        for name, encoder in self.encoders_.items():
            if not isinstance(encoder, _COLUMNS) or self.kinds_.get(name) not in FEATURES:
                raise ValueError(f"encoders_[{name!r}] is not an encoder of a column")
        categories = {name for name, one in self.encoders_.items() if isinstance(one, CategoryColumn)}
        if set(self.unseen_) != categories or not all(isinstance(n, int) for n in self.unseen_.values()):
            raise ValueError("unseen_ does not count the rows of each column of categories")
        return {"n_features_in_": "= n", "_told": "texts"}

    # Fitting --------------------------------------------------------------------------------------------------------

    def _fit(self, X: Any) -> list[Column]:
        """Learn from a table; the columns that are used."""
        self._check_parameters()
        table = read_table(X)
        wanted, problems = _read_kinds(self.kinds, table)
        decisions = {
            column.name: wanted.get(column.name) or decide(column, self.max_categories)
            for column in table.columns
        }
        query = suggest(table)
        self._set_aside_query(table, query, decisions, wanted)
        used = [column for column in table.columns if decisions[column.name].kind in FEATURES]
        problems += [problem for problem in table.problems if not _is_dropped(problem, table, decisions)]
        learned: dict[str, tuple[Any, Oddities]] = {}
        if not problems:
            learned = {column.name: self._learn(column, decisions[column.name]) for column in used}
            for column in used:
                if column.name in wanted:
                    problems += _unreadable(column, decisions[column.name].kind, learned[column.name][1])
        if problems:
            raise ValueError(_one_message(problems))
        self.encoders_ = {name: encoder for name, (encoder, _) in learned.items()}
        self.summary_ = _summarise(table, decisions, learned, query)
        self.unseen_ = {
            name: 0 for name, encoder in self.encoders_.items() if isinstance(encoder, CategoryColumn)
        }
        self._told: list[str] = []
        self.n_features_in_ = len(table.columns)
        self.__dict__.pop("feature_names_in_", None)
        if table.named:
            self.feature_names_in_ = np.asarray([column.name for column in table.columns], dtype=object)
        if not sum(len(encoder.names("")) for encoder in self.encoders_.values()):
            raise ValueError(_without_features(self.summary_))
        return used

    def _check_parameters(self) -> None:
        for name in ("max_categories", "text_features"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
                raise ValueError(f"{name} must be a positive whole number: found {value!r}.")
        if self.sparse_output not in (True, False, "auto"):
            raise ValueError(f"sparse_output must be True, False or 'auto': found {self.sparse_output!r}.")
        if self.dtype not in ("float64", "float32"):
            raise ValueError(f"dtype must be 'float64' or 'float32': found {self.dtype!r}.")

    def _set_aside_query(
        self, table: Table, query: str | None, decisions: dict[str, Decision], wanted: Mapping[str, Decision]
    ) -> None:
        """Query labels are not features: what was learned about one query says nothing about the next."""
        if query is None or query in wanted or decisions[query].kind not in FEATURES:
            return
        (column,) = (column for column in table.columns if column.name == query)
        n_labels = (
            len(column.texts.factorised[1]) if column.texts is not None else np.unique(column.array).size
        )
        if n_labels >= 10 or decisions[query].kind == "number":
            decisions[query] = Decision("identifier", f"{n_labels:,} labels, looks like the query column")

    def _learn(self, column: Column, decision: Decision) -> tuple[Any, Oddities]:
        if decision.kind in ("number", "boolean"):
            return NumberColumn.learn(column, truth=decision.kind == "boolean")
        if decision.kind == "category":
            return CategoryColumn.learn(column, self.max_categories, decision.categories)
        if decision.kind == "date":
            return DateColumn.learn(column)
        if decision.kind == "text":
            return TextColumn.learn(column, self.text_features, reduce=True)
        return TextColumn.learn(column, decision.n_features, reduce=False)

    # Transforming ---------------------------------------------------------------------------------------------------

    def _matched(self, table: Table) -> tuple[list[Column], list[str]]:
        """The columns that the encoders need, in their order; and the names of others that training did not have."""
        if not (hasattr(self, "feature_names_in_") and table.named):
            if len(table.columns) != self.n_features_in_:
                raise ValueError(
                    f"X has {len(table.columns)} features, but {type(self).__name__} is expecting "
                    f"{self.n_features_in_} features as input{_listed(self)}."
                )
            found = dict(zip(self.kinds_, table.columns))
            extra: list[str] = []
        else:
            found = {column.name: column for column in table.columns}
            extra = [name for name in found if name not in self.kinds_]
        needed = list(self.encoders_)
        absent = [name for name in needed if name not in found]
        problems = [f"column {name!r} of the training data is missing" for name in absent]
        if absent and extra:
            problems[-1] += f"; found instead: {', '.join(map(repr, extra[:_MOST_LISTED]))}"
        problems += [found[name].problem for name in needed if name in found and found[name].problem]
        counts = Counter(column.name for column in table.columns)
        problems += [f"column {name!r} appears twice" for name in needed if counts[name] > 1 and table.named]
        if problems:
            raise ValueError(_one_message(problems))
        return [found[name] for name in needed], extra

    def _assemble(self, columns: list[Column]) -> tuple[Any, dict[str, Oddities]]:
        """The features of the columns that the encoders need, and what was odd about each."""
        as_sparse = self.sparse_output
        if as_sparse == "auto":
            as_sparse = any(kind == "words" for kind in self.kinds_.values())
        edges = np.cumsum([0, *(len(encoder.names("")) for encoder in self.encoders_.values())]).tolist()
        shape = columns[0].size, edges[-1]
        if not as_sparse:
            n_bytes = shape[0] * shape[1] * np.dtype(self.dtype).itemsize
            require_memory(n_bytes, "the encoded table", "Use sparse_output=True.")
        out = None if as_sparse else np.empty(shape, dtype=self.dtype)
        blocks, odd = [], {}
        for k, ((name, encoder), column) in enumerate(zip(self.encoders_.items(), columns)):
            block, odd[name] = encoder.features(column)
            if out is None:
                blocks.append(sp.csr_array(block).astype(self.dtype))
            else:
                out[:, edges[k] : edges[k + 1]] = block.toarray() if sp.issparse(block) else block
        return sp.csr_array(sp.hstack(blocks, format="csr")) if out is None else out, odd

    def _tell(self, odd: Mapping[str, Oddities], extra: Sequence[str]) -> None:
        """Count what was odd, and warn of each column once."""
        told, notes = self._told, []
        for name, found in odd.items():
            if found.unseen:
                self.unseen_[name] += sum(found.unseen.values())
            for what, values in (
                ("category not seen in training", found.unseen),
                ("value that cannot be read, taken as missing", found.stray),
            ):
                if values and f"{what} {name}" not in told:
                    told.append(f"{what} {name}")
                    n = sum(values.values())
                    rows = "row" if n == 1 else "rows"
                    notes.append(f"column {name!r}: {n:,} {rows} with a {what} ({_examples(values)})")
        new = [name for name in extra if f"extra {name}" not in told]
        if new:
            told.extend(f"extra {name}" for name in new)
            notes.append(f"not in training, ignored: {', '.join(map(repr, new[:12]))}")
        if notes:
            warnings.warn(
                _bulleted("The table differs from that of the training:", notes), TableWarning, stacklevel=3
            )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.input_tags.sparse = False
        tags.transformer_tags.preserves_dtype = [self.dtype]
        return tags


def table_encoder(model: Any) -> TableEncoder | None:
    """What makes numbers of the tables that a fitted model or pipeline takes, if it takes tables."""
    first = model[0] if hasattr(model, "steps") else model
    found = first if isinstance(first, TableEncoder) else getattr(first, "encoder_", None)
    return found if isinstance(found, TableEncoder) else None


def _read_kinds(kinds: Any, table: Table) -> tuple[dict[str, Decision], list[str]]:
    """What the caller says about columns, and what is wrong with it."""
    if kinds is None:
        return {}, []
    if not isinstance(kinds, Mapping):
        raise TypeError(
            f"kinds must map column names to kinds, as in {{'colour': 'category'}}: found {type(kinds).__name__}."
        )
    names = [column.name for column in table.columns]
    decisions, problems = {}, []
    for name, kind in kinds.items():
        if name not in names:
            problems.append(
                f"kinds names column {name!r}, which is not there: found {', '.join(map(repr, names[:12]))}"
            )
            continue
        decision = _read_kind(kind)
        if decision is None:
            problems.append(
                f"kinds={{{name!r}: {kind!r}}} is not known: expected one of {', '.join(map(repr, FEATURES))}, "
                "'onehot', 'words:N', 'drop', or a list of categories"
            )
        else:
            decisions[name] = decision
    return decisions, problems


def _read_kind(kind: Any) -> Decision | None:
    if isinstance(kind, str):
        head, _, number = kind.partition(":")
        if head == "words" and (number.isdecimal() and int(number) > 0 or kind == "words"):
            return Decision("words", n_features=int(number) if number else 1024)
        kind = _ALIASES.get(kind, kind)
        return Decision(kind, "as asked") if kind in (*FEATURES, "drop") else None
    if isinstance(kind, Sequence) and kind and all(isinstance(label, str) for label in kind):
        return Decision("category", categories=list(dict.fromkeys(kind)))
    return None


def _is_dropped(problem: str, table: Table, decisions: Mapping[str, Decision]) -> bool:
    return any(
        column.problem == problem and decisions[column.name].kind == "drop" for column in table.columns
    )


def _unreadable(column: Column, kind: str, odd: Oddities) -> list[str]:
    """A kind that was asked for and that most values of the column are not."""
    n_stray, n_read = sum(odd.stray.values()), column.size - odd.n_missing
    if n_stray <= n_read:
        return []
    return [
        f"column {column.name!r} is to be read as {kind}, and {n_stray:,} values cannot be ({_examples(odd.stray)})"
    ]


def _summarise(
    table: Table,
    decisions: Mapping[str, Decision],
    learned: Mapping[str, tuple[Any, Oddities]],
    query: str | None,
) -> TableSummary:
    columns = []
    for column in table.columns:
        decision = decisions[column.name]
        entry = ColumnSummary(column.name, decision.kind)
        entry.notes = [note for note in (decision.note, column.note) if note]
        if column.name in learned:
            encoder, odd = learned[column.name]
            entry.n_features, entry.n_missing = len(encoder.names("")), odd.n_missing
            entry.detail = encoder.detail() if decision.kind != "boolean" else ""
            if odd.stray:
                count = sum(odd.stray.values())
                entry.notes.append(
                    f"{count:,} values that cannot be read as {decision.kind} are treated as missing "
                    f"({_examples(odd.stray)})"
                )
            if odd.n_infinite:
                entry.notes.append(
                    f"{odd.n_infinite:,} infinite {'value' if odd.n_infinite == 1 else 'values'}"
                )
        elif column.form != TEXT:
            entry.n_missing = int(np.isnan(column.array).sum())
        else:
            assert column.texts is not None
            entry.n_missing = column.texts.values.count(None) + column.texts.values.count("")
        columns.append(entry)
    return TableSummary(columns, table.n_rows, query)


def _examples(values: Mapping[str, int]) -> str:
    shown = sorted(values, key=lambda text: -values[text])[:_EXAMPLES]
    clipped = [repr(text if len(text) <= 30 else text[:27] + "...") for text in shown]
    return ", ".join(clipped + (["..."] if len(values) > _EXAMPLES else []))


def _listed(encoder: TableEncoder) -> str:
    """The columns of the training by their names, where they have some."""
    names = getattr(encoder, "feature_names_in_", [])
    more = ", ..." if len(names) > _MOST_LISTED else ""
    return f": {', '.join(map(repr, names[:_MOST_LISTED]))}{more}" if len(names) else ""


def _without_features(summary: TableSummary) -> str:
    """That nothing is left to learn from, and why, in one line."""
    if summary.n_rows == 1:
        return "The table has 1 sample(s), and a row alone shows no differences: expected two rows or more."
    why = {"constant": "has one value", "empty": "has no value"}
    columns = [f"{one.name!r} {why.get(one.kind, f'is of kind {one.kind}')}" for one in summary.columns]
    more = f" and {len(columns) - _EXAMPLES} more" if len(columns) > _EXAMPLES else ""
    return (
        f"No column of the table ({summary.n_rows} sample(s)) can be used as a feature: "
        f"{', '.join(columns[:_EXAMPLES])}{more}. Add a column whose values differ."
    )


def _one_message(problems: Sequence[str]) -> str:
    if len(problems) == 1:
        return f"The table cannot be used: {problems[0]}."
    return _bulleted(f"The table cannot be used, for {len(problems)} reasons:", problems)


def _bulleted(heading: str, lines: Sequence[str]) -> str:
    if len(lines) == 1:
        return f"{heading} {lines[0]}"
    return "\n  - ".join([heading, *lines])
