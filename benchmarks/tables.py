"""How long do reading, typing and encoding a table take, against ``pandas.read_csv`` alone?

A file of 100,000 rows with 10 numbers, 5 categories, 2 dates (a day and a moment) and a text of eight words, some
values missing. Peers in the same run: reading alone, and what scikit-learn needs for the text column only.

Hashed words, which model files hold by their hash: the sentences of film reviews in the sentence polarity data
(``$PREFLEARN_DATA/sentence_polarity_v1`` or ``../shared/data/sentence_polarity_v1``), against scikit-learn's
HashingVectorizer and TfidfTransformer.

    python benchmarks/tables.py
    python benchmarks/tables.py --quick
"""

from __future__ import annotations

import lzma
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd
from sklearn.feature_extraction.text import HashingVectorizer, TfidfTransformer

from _harness import arguments, best_of, data_folder, report, write_results
from preflearn.io import read_table
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.tables.encoding.columns import hashed_words, rarity, weighted


def make_table(n_rows: int) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    table = {f"number{k}": rng.normal(size=n_rows).round(4) for k in range(10)}
    table["number3"][rng.random(n_rows) < 0.1] = np.nan
    for k in range(5):
        table[f"category{k}"] = rng.choice([f"label{j}" for j in range(4 + 4 * k)], n_rows)
    table["day"] = (np.datetime64("2020-01-01") + rng.integers(0, 1500, n_rows)).astype(str)
    moments = np.datetime64("2020-01-01T00:00:00") + rng.integers(0, 10**8, n_rows)
    table["moment"] = np.char.replace(moments.astype(str), "T", " ")
    words = np.array([f"word{k:04d}" for k in range(5000)])
    drawn = words[np.minimum(rng.zipf(1.3, (n_rows, 8)) - 1, 4999)]
    table["text"] = [" ".join(row) for row in drawn]
    return pd.DataFrame(table)


def encoding(folder: Path, n_rows: int, repeats: int) -> dict:
    path = folder / "table.csv"
    make_table(n_rows).to_csv(path, index=False)
    frame = pd.read_csv(path)
    encoder = TableEncoder().fit(frame)
    assert list(encoder.kinds_.values()) == ["number"] * 10 + ["category"] * 5 + ["date"] * 2 + ["text"]
    texts = frame["text"].tolist()
    return report(
        "A table, from the file to the matrix",
        best_of(
            {
                "pandas.read_csv": lambda: pd.read_csv(path),
                "read_csv and fit_transform": lambda: TableEncoder().fit_transform(pd.read_csv(path)),
                "read_table and fit_transform": lambda: TableEncoder().fit_transform(
                    read_table(path, target=None, query=None, item=None).columns
                ),
                "fit_transform": lambda: TableEncoder().fit_transform(frame),
                "transform": lambda: encoder.transform(frame),
                "HashingVectorizer, text column only": lambda: HashingVectorizer(n_features=4096).transform(
                    texts
                ),
            },
            repeats=repeats,
        ),
        baseline="pandas.read_csv",
        limits={"read_csv and fit_transform": 3.0},
        note=f"{n_rows:,} rows, 10 numbers, 5 categories, 2 dates, 1 text; {path.stat().st_size / 1e6:.0f} MB",
        extra={"n_features": len(encoder.get_feature_names_out())},
    )


def words(folder: Path, repeats: int) -> dict:
    """Texts to sparse rows of hashed words, weighted by rarity and of length 1."""
    files = [folder / f"rt-polarity.{side}.xz" for side in ("neg", "pos")]
    texts = [line.rstrip("\n") for file in files for line in lzma.open(file, "rt", encoding="latin-1")]

    def ours() -> object:
        Z = hashed_words(texts, 4096)
        return weighted(Z, rarity(Z))

    def theirs() -> object:
        counts = HashingVectorizer(n_features=4096, norm=None).transform(texts)
        return TfidfTransformer().fit_transform(counts)

    return report(
        "Hashed words of a column of texts",
        best_of(
            {"hashed_words, weighted": ours, "HashingVectorizer, TfidfTransformer": theirs}, repeats=repeats
        ),
        baseline="hashed_words, weighted",
        note=f"{len(texts):,} sentences of the sentence polarity data",
    )


def inside_queries(n_rows: int, repeats: int) -> dict:
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(n_rows, 46)), rng.integers(0, n_rows // 50, n_rows)
    return report(
        "Features relative to their query",
        best_of(
            {
                "argsort of each column": lambda: np.argsort(X, axis=0),
                "standardise": lambda: QueryRelative(keep=False).fit_transform(X, qid=qid),
                "rank": lambda: QueryRelative("rank", keep=False).fit_transform(X, qid=qid),
            },
            repeats=repeats,
        ),
        baseline="argsort of each column",
        note=f"{n_rows:,} rows x 46 features, queries of 50",
    )


def main() -> None:
    options = arguments(__doc__)
    n_rows, repeats = (10_000, 2) if options.quick else (100_000, options.repeats)
    with tempfile.TemporaryDirectory() as folder:
        results = [encoding(Path(folder), n_rows, repeats), inside_queries(n_rows, repeats)]
    sentences = data_folder("sentence_polarity_v1")
    if sentences is not None:
        results.append(words(sentences, repeats))
    if not options.quick:
        write_results("tables", *results)


if __name__ == "__main__":
    main()
