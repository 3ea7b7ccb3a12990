"""Public ranking data as the benchmarks take them: rows to learn from, to validate on and to test on, fold by fold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from preflearn.io import read_ranking


@dataclass(frozen=True)
class Part:
    """Rows of a data set, those of a query side by side."""

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray

    @property
    def sizes(self) -> np.ndarray:
        return np.unique(self.qid, return_counts=True)[1]

    @property
    def centred(self) -> np.ndarray:
        """Grades minus the mean of their query: what a regression must be given to rank."""
        codes = np.unique(self.qid, return_inverse=True)[1]
        return self.y - (np.bincount(codes, self.y) / np.bincount(codes))[codes]

    def widened(self, width: int) -> Part:
        """With columns of zeros at the end: features that no row of a file has."""
        missing = width - self.X.shape[1]
        return Part(np.pad(self.X, ((0, 0), (0, missing))), self.y, self.qid) if missing else self

    def __add__(self, other: Part) -> Part:
        later = other.qid + self.qid.max() + 1
        return Part(np.r_[self.X, other.X], np.r_[self.y, other.y], np.r_[self.qid, later])


def generated(_: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """A LETOR-like set: 46 correlated, skewed features, grades 0 to 4, queries of 20 to 150 rows."""
    rng = np.random.default_rng(fold)
    mixing = rng.normal(size=(12, 46))
    weights = rng.normal(size=12)

    def part(n_queries: int) -> Part:
        qid = np.repeat(np.arange(n_queries), rng.integers(20, 151, n_queries))
        hidden = rng.normal(size=(qid.shape[0], 12))
        utility = hidden @ weights / 2 + np.abs(hidden[:, 0]) * hidden[:, 1] + rng.normal(size=qid.shape[0])
        utility += 2 * rng.normal(size=n_queries)[qid]
        X = np.exp(0.3 * (hidden @ mixing + rng.normal(size=(qid.shape[0], 46))))
        return Part(X, np.digitize(utility, [1.0, 2.5, 4.0, 5.5]).astype(float), qid)

    return part(150), part(50), part(100)


def letor_parts(folder: str, pattern: str, missing: float | None = None) -> Callable:
    """Five parts: in fold k the parts k, k + 1, k + 2 train, k + 3 validates and k + 4 tests."""

    def read(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
        names = [pattern.format(1 + (fold + step) % 5) for step in range(5)]
        return _read_parts(data, folder, (names[:3], names[3:4], names[4:]), missing)

    return read


def letor_files(folder: str, *names: str) -> Callable:
    """One file to train on, one to validate, one to test."""

    def read(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
        return _read_parts(data, folder, tuple([name] for name in names))

    return read


def _read_parts(
    data: Path | None, folder: str, names: tuple[list[str], ...], missing: float | None = None
) -> tuple[Part, Part, Part]:
    if data is None:
        raise FileNotFoundError(f"{folder} lies in a folder that --data names")
    parts = [_read_part([data / folder / one for one in some], missing) for some in names]
    width = max(part.X.shape[1] for part in parts)
    first, second, third = (part.widened(width) for part in parts)
    return first, second, third


def mslr_10k(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """A training and a test file; a fifth of the training queries validates."""
    train, _, test = _read_parts(
        data,
        "mslr_sample",
        tuple([f"web10k_fold1_{part}_5k.txt.xz"] for part in ("train", "train", "test")),
    )
    return (*_split_off_validation(train, fold), test)


def _split_off_validation(whole: Part, fold: int) -> tuple[Part, Part]:
    queries = np.random.default_rng(fold).permutation(whole.qid.max() + 1)
    validates = np.isin(whole.qid, queries[: len(queries) // 5])
    first, second = (Part(whole.X[rows], whole.y[rows], whole.qid[rows]) for rows in (~validates, validates))
    return first, second


def lightgbm_example(data: Path | None, fold: int) -> tuple[Part, Part, Part]:
    """The example of LightGBM's own documentation; a fifth of its training queries validates."""
    import lzma

    from sklearn.datasets import load_svmlight_file

    if data is None:
        raise FileNotFoundError("lightgbm_lambdarank lies in a folder that --data names")
    found = []
    for part in ("train", "test"):
        with lzma.open(data / "lightgbm_lambdarank" / f"rank.{part}.xz") as file:
            X, y = load_svmlight_file(file, n_features=301)
        sizes = np.loadtxt(data / "lightgbm_lambdarank" / f"rank.{part}.query", dtype=int)
        found.append(Part(X.toarray()[:, 1:], y, np.repeat(np.arange(len(sizes)), sizes)))
    whole, test = found
    return (*_split_off_validation(whole, fold), test)


def files_of_folds(folder: Path) -> list[tuple[Path, Path | None, Path]]:
    """Files to train on, to validate and to test, as MSLR-WEB (Fold1/train.txt), Yahoo (set1.train.txt) and Istella
    (train.txt, with or without vali.txt) have them, compressed or not.
    """
    parts = [("train",), ("vali", "valid"), ("test",)]
    starts = [f"{one.name}/" for one in sorted(folder.glob("Fold*"))]
    starts += sorted({one.name.split(".")[0] + "." for one in folder.glob("set*.train.txt*")})
    folds = []
    for start in starts or [""]:
        found = [
            next((path for name in names for path in sorted(folder.glob(f"{start}{name}.txt*"))), None)
            for names in parts
        ]
        if found[0] is None or found[2] is None:
            raise FileNotFoundError(
                f"{folder} has no {start}train.txt and {start}test.txt: expected Fold1/train.txt, set1.train.txt or "
                "train.txt, and the same for vali (or valid) and test."
            )
        folds.append((found[0], found[1], found[2]))
    return folds


def standard_fold(data: Path, fold: int) -> tuple[Part, Part, Part]:
    """A fold of a public set; without a file to validate, a fifth of the training queries does."""
    train, validation, test = files_of_folds(data)[fold]
    first, second, third = _read_parts(data, "", ([train], [validation or train], [test]))
    return (first, second, third) if validation else (*_split_off_validation(first, fold), third)


def like_mslr(rows: int, seed: int) -> Part:
    """Rows as in MSLR-WEB30K: 136 features, half of them counts, 120 rows a query, grades from 0 (52 %) to 4 (1 %)."""
    hidden_to_features = np.random.default_rng(0).normal(size=(20, 136))
    rng = np.random.default_rng(seed)
    qid = np.arange(rows) // 120
    hidden = rng.normal(size=(rows, 20)).astype(np.float32)
    X = hidden @ hidden_to_features + 2 * rng.standard_normal((rows, 136), dtype=np.float32)
    X[:, :68] = np.floor(np.exp(0.2 * X[:, :68] + 1))
    utility = hidden[:, :4].sum(axis=1) + hidden[:, 0] * hidden[:, 1] + np.maximum(hidden[:, 2], 0) ** 2
    utility += 3 * rng.normal(size=rows) + rng.normal(size=qid[-1] + 1)[qid]
    return Part(X, np.searchsorted([0.52, 0.84, 0.97, 0.99], _quantiles(utility)).astype(float), qid)


def _quantiles(values: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(values)) / len(values)


def _read_part(paths: list[Path], missing: float | None = None) -> Part:
    parts = []
    for path in paths:
        data = read_ranking(path, missing=missing)
        X = data.X.toarray() if hasattr(data.X, "toarray") else np.asarray(data.X)
        codes = np.unique(data.qid, return_inverse=True)[1]
        order = np.argsort(codes, kind="stable")
        parts.append(Part(X[order].astype(np.float64), data.y[order].astype(float), codes[order]))
    width = max(part.X.shape[1] for part in parts)
    return reduce(Part.__add__, (part.widened(width) for part in parts))


# Each with the number of its folds.
DATA: dict[str, tuple[Callable, int]] = {
    "ohsumed": (letor_parts("letor_ohsumed_v2", "S{}.txt.xz"), 5),
    "ohsumed3": (letor_parts("letor_ohsumed_v3", "QueryLevelNorm/S{}.txt.xz"), 5),
    "mq2007": (letor_parts("letor_mq2007", "partial46_S{}.txt.xz"), 5),
    # Ranks in 21 lists; a document that a list does not name has none. Trees and AutoRanker take missing values.
    "mq2007agg": (letor_parts("letor_mq2007", "agg_S{}.txt.xz", missing=np.nan), 5),
    "mslr": (
        letor_files(
            "mslr_sample", *(f"web30k_fold1_{part}_sample.txt.xz" for part in ("train", "vali", "test"))
        ),
        1,
    ),
    "mslr10k": (mslr_10k, 1),
    "lightgbm": (lightgbm_example, 1),
    "generated": (generated, 5),
}
