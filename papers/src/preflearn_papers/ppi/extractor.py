"""The extractor: graphs of candidate pairs in, scores and decisions out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from preflearn.graphs import AllPathsFeatures, LabeledGraph, WeisfeilerLehmanFeatures, gram

from .training import ALPHAS, Settings, train

KERNELS = ("all-paths", "weisfeiler-lehman", "sum")
MIN_WEIGHT = 1e-5  # of the original program
RESCALE = 0.95


def feature_maps(
    kernel: str, aggregate: str = "max", n_jobs: int | None = None, verbose: int = 0
) -> list[Any]:
    """The maps whose features, side by side, are those of a kernel; "sum" is the sum of the two normalised kernels."""
    if kernel not in KERNELS:
        raise ValueError(f"kernel must be one of {KERNELS}; found {kernel!r}.")
    paths = AllPathsFeatures(
        aggregate, min_weight=MIN_WEIGHT, normalize=True, rescale=RESCALE, n_jobs=n_jobs, verbose=verbose
    )
    neighbourhoods = WeisfeilerLehmanFeatures(depth=1, normalize=True)
    chosen = {"all-paths": [paths], "weisfeiler-lehman": [neighbourhoods], "sum": [paths, neighbourhoods]}
    return chosen[kernel]


def side_by_side(blocks: Sequence[sparse.csr_array]) -> sparse.csr_array:
    """One sparse array of all features."""
    return blocks[0] if len(blocks) == 1 else sparse.csr_array(sparse.hstack(blocks, format="csr"))


class InteractionExtractor(ClassifierMixin, BaseEstimator):
    """Sparse RLS or RankRLS on a graph kernel, with alpha and threshold chosen by leave-one-document-out.

    Parameters
    ----------
    kernel : {"all-paths", "weisfeiler-lehman", "sum"}
        Which features of the graphs are compared; "sum" adds the two normalised kernels.
    aggregate : {"max", "sum"}
        For the all-paths features. The published figures come from the maximum.
    learner : {"rls", "rankrls"}
        Least squares on ±1 without an intercept, as published, or RankRLS over all pairs of candidates.
    n_basis : int
        Maximum number of basis vectors, drawn at random when there are more candidates.
    alphas : sequence of float
        Values of the regularisation to choose from.
    random_state : int
        For the basis vectors.
    n_jobs : int, optional
        Threads for the features.
    verbose : int
        1 prints progress.

    Attributes
    ----------
    alpha_, threshold_ : float
        Chosen by leave-one-document-out predictions: the alpha with the largest AUC, then the threshold with the
        largest F.
    held_out_f_ : float
        That F. It is the value that was maximised, hence too optimistic to report as performance; use `evaluate` for
        that.
    feature_maps_ : list
        The fitted maps from graphs to features.
    coef_ : ndarray
        Weight of every feature: the kernel expansion collapsed into one linear function.
    classes_ : ndarray
        [0, 1].

    Notes
    -----
    Training makes an m × m kernel matrix; prediction costs only the features of the new graphs.

    Examples
    --------
    >>> from preflearn_papers.ppi import candidates, read_corpus
    >>> graphs, labels, documents = candidates(read_corpus("LLL.xml"))  # doctest: +SKIP
    >>> InteractionExtractor().fit(graphs, labels, documents=documents).predict(graphs)  # doctest: +SKIP
    """

    def __init__(
        self, *, kernel: str = "all-paths", aggregate: str = "max", learner: str = "rls", n_basis: int = 4000,
        alphas: Sequence[float] = ALPHAS, random_state: int = 0, n_jobs: int | None = None, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.kernel, self.aggregate, self.learner, self.n_basis = kernel, aggregate, learner, n_basis
        self.alphas, self.random_state, self.n_jobs, self.verbose = alphas, random_state, n_jobs, verbose

    def fit(self, X: Iterable[LabeledGraph], y: Any, *, documents: Any) -> Self:
        """Learn from labelled candidates.

        Parameters
        ----------
        X : iterable of LabeledGraph
        y : array-like of shape (m,)
            1 for an interaction, 0 for none; every label must be known.
        documents : array-like of shape (m,)
            Document of each candidate.
        """
        settings = Settings(self.learner, self.n_basis, tuple(self.alphas), self.random_state)
        labels = known_labels(y)
        maps = feature_maps(self.kernel, self.aggregate, self.n_jobs, self.verbose)
        graphs = list(X)
        features = side_by_side([one.fit_transform(graphs) for one in maps])
        names = np.asarray(documents)
        if not features.shape[0] == labels.shape[0] == names.shape[0]:
            raise ValueError(
                f"One label and one document for each graph: found {features.shape[0]} graphs, "
                f"{labels.shape[0]} labels and {names.shape[0]} documents."
            )
        trained = train(gram(features), labels, names, settings)
        self.feature_maps_ = maps
        self.coef_ = features.T @ trained.coef
        self.alpha_ = trained.alpha
        self.threshold_ = trained.threshold
        self.held_out_f_ = trained.held_out_f
        self.classes_ = np.asarray([0, 1])
        return self

    def decision_function(self, X: Iterable[LabeledGraph]) -> np.ndarray:
        """Scores: the higher, the more likely is an interaction."""
        check_is_fitted(self, "coef_")
        graphs = list(X)
        return side_by_side([one.transform(graphs) for one in self.feature_maps_]) @ self.coef_

    def predict(self, X: Iterable[LabeledGraph]) -> np.ndarray:
        """1 where the score is above ``threshold_``, otherwise 0."""
        return (self.decision_function(X) > self.threshold_).astype(np.int64)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded extractor is checked for (`preflearn.tables.models.fitted`)."""
        if "coef_" not in vars(self):
            return {}
        return {
            "coef_": str(sum(one.n_features_out_ for one in self.feature_maps_)),
            "classes_": "2",
            "threshold_": "",
        }

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


def known_labels(y: Any) -> np.ndarray:
    """Labels 0 and 1, all known."""
    labels = np.asarray(y, dtype=np.float64)
    unknown = np.count_nonzero(np.isnan(labels))
    if unknown:
        raise ValueError(
            f"{unknown} of {labels.shape[0]} candidates have no label: every pair must say whether it interacts."
        )
    if not np.isin(labels, (0, 1)).all():
        raise ValueError("Labels must be 1 (interaction) and 0 (none).")
    return labels.astype(np.int64)
