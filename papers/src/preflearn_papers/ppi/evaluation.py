"""Evaluation of the extractor: cross-validation by document, across corpora, and with growing training data.

Folds consist of whole documents, the same number in each, since candidates of one sentence share their words; alpha
and threshold are chosen inside the training folds. Each figure is the mean over test folds, as in Airola et al. (2008).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse
from sklearn.model_selection import GroupKFold

from preflearn.graphs import gram

from .extractor import feature_maps, known_labels, side_by_side
from .measures import Measures, best_threshold, measure, ratio_threshold
from .representation import Candidates
from .training import Settings, Trained, train

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Progress = Callable[[str], None]


@dataclass(frozen=True)
class TestResult:
    """One trained extractor on one test set, with three thresholds and the baseline of predicting every pair."""

    __test__ = False  # not a test for pytest to collect

    n_train: int
    n_test: int
    alpha: float
    threshold: float
    at_training: Measures  # the threshold chosen on the training documents
    at_ratio: Measures  # the number of predicted interactions is the true number in the test set
    at_optimum: Measures  # the best threshold for this test set: an upper bound, not a result
    at_all: Measures  # every candidate predicted: the co-occurrence baseline
    split: int = 0

    @property
    def auc(self) -> float:
        return self.at_training.auc


def score_test_set(
    trained: Trained, y: np.ndarray, scores: np.ndarray, n_train: int, split: int = 0
) -> TestResult:
    """Measure scores of a test set at the three thresholds."""
    at_ratio = ratio_threshold(scores, float(np.mean(y == 1)))
    return TestResult(
        n_train=n_train,
        n_test=y.shape[0],
        alpha=trained.alpha,
        threshold=trained.threshold,
        at_training=measure(y, scores, trained.threshold),
        at_ratio=measure(y, scores, at_ratio),
        at_optimum=measure(y, scores, best_threshold(y, scores)[0]),
        at_all=measure(y, scores, -np.inf),
        split=split,
    )


@dataclass
class Evaluation:
    """Cross-validation by document; prints as a table."""

    corpus: str
    n_positive: int
    n_negative: int
    results: list[TestResult]
    settings: dict[str, Any] = field(default_factory=dict)

    def values(self, name: str, threshold: str = "training") -> np.ndarray:
        """A measure ("precision", "recall", "f", "auc") of every test fold."""
        return np.asarray([getattr(getattr(one, f"at_{threshold}"), name) for one in self.results])

    def mean(self, name: str, threshold: str = "training") -> float:
        """Mean over test folds (those with both classes, for AUC)."""
        return float(np.nanmean(self.values(name, threshold)))

    def spread(self, name: str, threshold: str = "training") -> float:
        """Standard deviation over test folds."""
        return float(np.nanstd(self.values(name, threshold)))

    def over_splits(self, name: str, threshold: str = "training") -> np.ndarray:
        """Mean over the folds of each random split."""
        values = self.values(name, threshold)
        splits = np.asarray([one.split for one in self.results])
        return np.asarray([np.nanmean(values[splits == split]) for split in np.unique(splits)])

    def __str__(self) -> str:
        splits = len({one.split for one in self.results})
        title = (
            f"{self.corpus}: {self.n_positive} interactions, {self.n_negative} other pairs; "
            f"{len(self.results)} test folds in {splits} split{'s' if splits > 1 else ''} by document"
        )
        lines = [title, f"{'':24}{'P':>8}{'R':>8}{'F':>8}{'± folds':>9}{'AUC':>8}{'± folds':>9}"]
        for threshold, shown in THRESHOLDS.items():
            cells = [self.mean(name, threshold) for name in ("precision", "recall", "f")]
            line = f"{shown:24}" + "".join(f"{100 * cell:8.1f}" for cell in cells)
            line += f"{100 * self.spread('f', threshold):9.1f}"
            if threshold == "training":
                line += f"{100 * self.mean('auc'):8.1f}{100 * self.spread('auc'):9.1f}"
            lines.append(line)
        if splits > 1:
            f, area = (self.over_splits(name) for name in ("f", "auc"))
            lines.append(
                f"{'means of the splits':24}{'':16}{100 * f.min():.1f} to {100 * f.max():.1f} F, "
                f"{100 * area.min():.1f} to {100 * area.max():.1f} AUC"
            )
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Box of every test fold's precision, recall, F and AUC."""
        ax = _axes(ax)
        names = {"precision": "precision", "recall": "recall", "f": "F", "auc": "AUC"}
        values = [self.values(name) for name in names]
        ax.boxplot([100 * one[~np.isnan(one)] for one in values], tick_labels=list(names.values()))
        ax.set_ylabel("per cent, test folds")
        ax.set_title(self.corpus)
        return ax


THRESHOLDS = {
    "training": "threshold of training",
    "ratio": "by class ratio of test",
    "optimum": "optimal for test",
    "all": "every pair called",
}


@dataclass
class CrossCorpus:
    """Every corpus as training set, tested on the others; prints as matrices with training corpora as rows."""

    corpora: list[str]
    results: dict[tuple[str, str], TestResult]
    settings: dict[str, Any] = field(default_factory=dict)

    def matrix(self, name: str = "auc", threshold: str = "training") -> np.ndarray:
        """A measure for each training corpus (row) and test corpus (column); NaN where there is none."""
        values = np.full((len(self.corpora), len(self.corpora)), np.nan)
        for row, trained_on in enumerate(self.corpora):
            for column, tested_on in enumerate(self.corpora):
                if (trained_on, tested_on) in self.results:
                    values[row, column] = getattr(
                        getattr(self.results[trained_on, tested_on], f"at_{threshold}"), name
                    )
        return values

    def __str__(self) -> str:
        parts = [_matrix_text("AUC", self.corpora, self.matrix("auc"))]
        for threshold, shown in THRESHOLDS.items():
            if threshold == "all":
                continue
            parts.append(_matrix_text(f"F, {shown}", self.corpora, self.matrix("f", threshold)))
        return "\n\n".join(parts)

    def to_dict(self) -> dict[str, Any]:
        results = [
            {"train": trained_on, "test": tested_on, **asdict(one)}
            for (trained_on, tested_on), one in self.results.items()
        ]
        return {"corpora": self.corpora, "results": results, "settings": self.settings}

    def plot(self, ax: Axes | None = None, name: str = "auc", threshold: str = "training") -> Axes:
        """The matrix as coloured cells with their values."""
        ax = _axes(ax)
        values = 100 * self.matrix(name, threshold)
        ax.imshow(values, cmap="viridis")
        middle = np.nanmean(values)
        for (row, column), value in np.ndenumerate(values):
            if not np.isnan(value):
                colour = "black" if value > middle else "white"
                ax.text(column, row, f"{value:.1f}", ha="center", va="center", color=colour)
        ax.set_xticks(range(len(self.corpora)), self.corpora)
        ax.set_yticks(range(len(self.corpora)), self.corpora)
        ax.set_xlabel("test corpus")
        ax.set_ylabel("training corpus")
        ax.set_title("AUC" if name == "auc" else f"{name}, {THRESHOLDS[threshold]}")
        return ax


@dataclass
class LearningCurve:
    """AUC on a fixed half of the documents as the training documents grow; prints as a table."""

    corpus: str
    results: list[TestResult]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def sizes(self) -> np.ndarray:
        """Training candidates of each point, over all splits."""
        return np.asarray([one.n_train for one in self.results])

    @property
    def aucs(self) -> np.ndarray:
        return np.asarray([one.auc for one in self.results])

    def __str__(self) -> str:
        lines = [f"{self.corpus}: learning curve", f"{'candidates':>12}{'AUC':>8}{'F':>8}"]
        lines += [
            f"{one.n_train:12d}{100 * one.auc:8.1f}{100 * one.at_training.f:8.1f}" for one in self.results
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    def plot(self, ax: Axes | None = None) -> Axes:
        """AUC against the number of training candidates, on a logarithmic axis."""
        ax = _axes(ax)
        for split in sorted({one.split for one in self.results}):
            points = [one for one in self.results if one.split == split]
            label = self.corpus if split == 0 else None
            ax.plot([one.n_train for one in points], [100 * one.auc for one in points], "o-", label=label)
        ax.set_xscale("log")
        ax.set_xlabel("training candidates")
        ax.set_ylabel("AUC, per cent")
        ax.legend()
        return ax


def evaluate(
    candidates: Candidates,
    *,
    kernel: str = "all-paths",
    aggregate: str = "max",
    settings: Settings | None = None,
    n_folds: int = 10,
    n_splits: int = 1,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> Evaluation:
    """Cross-validate by document, alpha and threshold chosen inside the training folds.

    Parameters
    ----------
    candidates : Candidates
        All labelled.
    kernel, aggregate : str
        As in `InteractionExtractor`.
    settings : Settings, optional
        Learner, number of basis vectors, alphas.
    n_folds, n_splits : int
        Folds of one random split of the documents, and the number of such splits.
    random_state : int
        Split s is drawn with ``random_state + s``.
    n_jobs : int, optional
        Threads for the features.
    progress : callable, optional
        Called with a line of text as the work progresses.

    Returns
    -------
    Evaluation

    Notes
    -----
    The kernel matrix is made once; each fold factorises one matrix of the size of the basis, and every document
    inside is held out by algebra.
    """
    settings, y = settings or Settings(), known_labels(candidates.labels)
    tell = progress or _silent
    _check_documents(candidates, n_folds)
    K = gram(_features(candidates, kernel, aggregate, n_jobs, tell))
    results = []
    for split in range(n_splits):
        folds = GroupKFold(n_folds, shuffle=True, random_state=random_state + split)
        for number, (inside, outside) in enumerate(folds.split(K, groups=candidates.documents)):
            trained = train(K[np.ix_(inside, inside)], y[inside], candidates.documents[inside], settings)
            scores = K[np.ix_(outside, inside)] @ trained.coef
            results.append(score_test_set(trained, y[outside], scores, inside.shape[0], split))
            last = results[-1].at_training
            tell(
                f"{candidates.name} split {split + 1}/{n_splits} fold {number + 1}/{n_folds}: alpha "
                f"{trained.alpha:g}, F {100 * last.f:.1f}, AUC {100 * last.auc:.1f}"
            )
    described = {"kernel": kernel, "aggregate": aggregate, "n_folds": n_folds, "random_state": random_state}
    return Evaluation(
        corpus=candidates.name,
        n_positive=int(y.sum()),
        n_negative=int((1 - y).sum()),
        results=results,
        settings={**described, **asdict(settings)},
    )


def cross_corpus(
    corpora: Sequence[Candidates],
    *,
    training: Sequence[str] | None = None,
    kernel: str = "all-paths",
    aggregate: str = "max",
    settings: Settings | None = None,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> CrossCorpus:
    """Train on each corpus, test on every other; alpha and threshold by leave-one-document-out on the training corpus.

    Parameters
    ----------
    corpora : sequence of Candidates
        At least two, with different names.
    training : sequence of str, optional
        Names of the corpora to train on; all of them by default.
    kernel, aggregate, settings, n_jobs, progress
        As in `evaluate`.
    """
    settings, tell = settings or Settings(), progress or _silent
    names = [one.name for one in corpora]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError(f"Two or more corpora with different names are needed; found {names}.")
    absent = [name for name in training or () if name not in names]
    if absent:
        raise ValueError(f"training names {absent[0]!r}, which is not one of the corpora {names}.")
    labels = [known_labels(one.labels) for one in corpora]
    maps = feature_maps(kernel, aggregate, n_jobs)
    together = [graph for one in corpora for graph in one.graphs]
    tell(f"features of {len(together)} candidates")
    X = side_by_side([one.fit_transform(together) for one in maps])
    ends = np.cumsum([0, *(len(one) for one in corpora)])
    blocks = [X[first:last] for first, last in zip(ends[:-1], ends[1:], strict=True)]
    results = {}
    for trained_on, name in enumerate(names):
        if training is not None and name not in training:
            continue
        block = blocks[trained_on]
        tell(f"training on {name}, {block.shape[0]} candidates")
        trained = train(gram(block), labels[trained_on], corpora[trained_on].documents, settings)
        weights = block.T @ trained.coef
        for tested_on, other in enumerate(names):
            if tested_on != trained_on:
                scores = blocks[tested_on] @ weights
                results[name, other] = score_test_set(trained, labels[tested_on], scores, block.shape[0])
    return CrossCorpus(names, results, {"kernel": kernel, "aggregate": aggregate, **asdict(settings)})


def learning_curve(
    candidates: Candidates,
    *,
    kernel: str = "all-paths",
    aggregate: str = "max",
    settings: Settings | None = None,
    n_points: int = 6,
    n_splits: int = 1,
    random_state: int = 0,
    n_jobs: int | None = None,
    progress: Progress | None = None,
) -> LearningCurve:
    """AUC as training documents are added: half of the documents are the test set, the others are added step by step.

    Parameters
    ----------
    candidates, kernel, aggregate, settings, random_state, n_jobs, progress
        As in `evaluate`.
    n_points : int
        Training sizes, evenly spaced on a logarithmic scale up to all training documents.
    n_splits : int
        Random halves.
    """
    settings, y = settings or Settings(), known_labels(candidates.labels)
    tell = progress or _silent
    _check_documents(candidates, 4)
    K = gram(_features(candidates, kernel, aggregate, n_jobs, tell))
    results = []
    for split in range(n_splits):
        rng = np.random.default_rng(random_state + split)
        documents = rng.permutation(np.unique(candidates.documents))
        half = documents.shape[0] // 2
        outside = np.flatnonzero(np.isin(candidates.documents, documents[:half]))
        pool = documents[half:]
        counts = np.unique(np.geomspace(2, pool.shape[0], n_points).round().astype(int))
        for count in counts:
            inside = np.flatnonzero(np.isin(candidates.documents, pool[:count]))
            if np.unique(y[inside]).shape[0] < 2:
                continue
            trained = train(K[np.ix_(inside, inside)], y[inside], candidates.documents[inside], settings)
            scores = K[np.ix_(outside, inside)] @ trained.coef
            results.append(score_test_set(trained, y[outside], scores, inside.shape[0], split))
            tell(f"{candidates.name}: {inside.shape[0]} training candidates, AUC {100 * results[-1].auc:.1f}")
    return LearningCurve(
        candidates.name, results, {"kernel": kernel, "aggregate": aggregate, **asdict(settings)}
    )


def save_results(results: Evaluation | CrossCorpus | LearningCurve, path: str | Path) -> None:
    """Write all figures as JSON."""
    Path(path).write_text(json.dumps(results.to_dict(), indent=1) + "\n", encoding="utf-8")


def _features(
    candidates: Candidates, kernel: str, aggregate: str, n_jobs: int | None, tell: Progress
) -> sparse.csr_array:
    maps = feature_maps(kernel, aggregate, n_jobs)
    tell(f"features of {len(candidates)} candidates")
    X = side_by_side([one.fit_transform(candidates.graphs) for one in maps])
    tell(f"{X.shape[1]} features, {X.nnz / max(len(candidates), 1):.0f} a candidate; kernel matrix")
    return X


def _check_documents(candidates: Candidates, needed: int) -> None:
    n_documents = np.unique(candidates.documents).shape[0]
    if n_documents < needed:
        raise ValueError(
            f"{candidates.name!r} has candidates in {n_documents} documents; at least {needed} are needed."
        )


def _silent(line: str) -> None:
    pass


def _matrix_text(title: str, names: list[str], values: np.ndarray) -> str:
    width = max(10, *(len(name) + 2 for name in names))
    lines = [f"{title} (rows: training corpus)", " " * width + "".join(f"{name:>{width}}" for name in names)]
    for name, row in zip(names, values, strict=True):
        cells = "".join(
            f"{'-':>{width}}" if np.isnan(value) else f"{100 * value:{width}.1f}" for value in row
        )
        lines.append(f"{name:{width}}" + cells)
    return "\n".join(lines)


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ImportError("Plots need matplotlib: pip install matplotlib") from None
    return plt.subplots()[1]
