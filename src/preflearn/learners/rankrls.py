"""RankRLS: least squares over the pairs of each query, or over explicit preferences."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..comparisons import Comparisons, Groups, PreferenceComparisons, compare_scores, encode_queries
from ..comparisons.inputs import (
    compare_times,
    depends_on_scores,
    named_cures,
    read_alpha,
    read_pairs,
    read_per_pair,
    read_scores,
    refuse_weights_of_rows,
    refuse_without_pairs,
    warn_if_equal,
)
from ..kernels.functions import n_items
from ..kernels.inputs import read_items
from ..model_selection._problem import Problem
from .base import RankerMixin, SquaredLossModel
from .incremental import AvailableUnless, IncrementalState, why_no_partial_fit
from .partial_targets import read_scores_and_pairs


class RankRLS(RankerMixin, SquaredLossModel):
    """Regularised least squares for ranking.

    Minimises Σ over pairs (i, j) of the same query of (s_i - s_j - (f(x_i) - f(x_j)))² + alpha ‖f‖² in the time of
    ordinary regularised least squares: pairs are never enumerated.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive. The loss is a sum over pairs: with weighting "pair" a query of n rows counts
        n (n - 1) / 2.
    kernel : str or callable, default="linear"
        A name of ``sklearn.metrics.pairwise.pairwise_kernels``, ``"precomputed"``, or a function of two items.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    n_basis : None, int or float, default=None
        Number of basis vectors of the reduced set, or their fraction of the rows; None for the full kernel.
    basis : "uniform", "diverse" or array of int, default="uniform"
        How the basis vectors are chosen: at random, at random among what the chosen ones do not yet span, or given as
        row numbers of X. In the hold-outs of this library they are row numbers of the whole X in every fold; in those
        of scikit-learn (``GridSearchCV``, ``cross_val_score``), which `fit` knows nothing of, they would name other
        rows in each fold: give `n_basis` there.
    random_state : int, RandomState or None
        For the draw of basis vectors.
    cost : {"magnitude", "unit", "relative"}, default="magnitude"
        What the predictions of a pair should differ by: s_i - s_j; 1; or s_i - s_j with the squared error divided by
        (s_i - s_j)².
    ties : {"include", "exclude"}, default="include"
        Whether pairs with equal scores are pulled together. Costs "unit" and "relative" always leave them out.
    weighting : {"pair", "item", "query"}, default="pair"
        Every pair counts once; blocks of queries are scaled by 1 / n_q; or every query has the same total.
    solver : {"auto", "dual", "primal", "cg"}, default="auto"
        The automatic choice is the table in `squared.routes`; `solver_` says what was used.
    tol, max_iter : optional
        Relative residual (1e-8; 1e-6 with a reduced set) and iteration limit of solver "cg".
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    coef_ : ndarray of shape (n,) or (v, n)
        Linear kernel without a reduced set.
    dual_coef_ : ndarray of shape (r,) or (r, v)
        Otherwise: coefficients of the basis vectors.
    basis_, basis_indices_
        The basis vectors (None for a precomputed kernel) and their rows in the training data.
    n_queries_ : int
    n_comparisons_ : int
        Pairs that were counted.
    solver_ : str
    n_iter_ : int
        Iterations of conjugate gradients; 1 for a direct solver.
    residual_ : float or None
        Relative residual that conjugate gradients reached.
    stream_ : dict
        After `fit_stream`: what was read (rows, chunks, queries), where a checkpoint was resumed, and how the basis
        vectors were chosen.

    Notes
    -----
    Full kernel: O(m² n) for the kernel and m³ / 3 for one Cholesky factorisation. Reduced set: O(m r²). Linear:
    O(m n²). Outputs share one factorisation unless the pairs depend on the scores (ties excluded, cost "unit" or
    "relative").
    Reference: Pahikkala, Tsivtsivadze, Airola, Järvinen and Boberg, "An efficient algorithm for learning to rank from
    preference graphs", Machine Learning 75 (2009).

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import RankRLS
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5] + 5 * qid
    >>> model = RankRLS(alpha=0.1).fit(X, y, qid=qid)
    >>> model.score(X, y, qid=qid)
    1.0
    """

    __metadata_request__fit = {"qid": True, "event": True}
    __metadata_request__partial_fit = {"qid": True}
    _incremental: IncrementalState | None

    def __init__(
        self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None, n_basis=None,
        basis="uniform", random_state=None, cost="magnitude", ties="include", weighting="pair", solver="auto",
        tol=None, max_iter=None, verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.cost, self.ties, self.weighting, self.solver = alpha, cost, ties, weighting, solver
        self.tol, self.max_iter = tol, max_iter

    @named_cures
    def fit(
        self, X, y, *, qid=None, event=None, sample_weight=None, pairs=None, magnitude=None, weight=None
    ) -> Self:
        """Learn from scores inside queries, and optionally from preferences as well; or from censored times.

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), or sequence of objects
        y : array-like of shape (m,) or (m, v)
            Scores, higher is better.
        qid : array-like of shape (m,), optional
            Query labels, any hashable values in any order; without them all rows are one query (a global ranking).
        event : array-like of bool, shape (m,), optional
            True where the event was seen at the time y, False where it was still to come (a censored time). Each row
            whose event was seen is compared with those (of its query, a stratum) that lived longer, and each of these
            should score 1 more, whatever `cost` and `ties`: how much longer is not known. A structured y of a boolean
            and a numeric field, such as scikit-survival's ``Surv``, holds both. Higher scores live longer.
        sample_weight : array-like of shape (m,), optional
            Weights of the rows, not negative: a pair counts with the product of those of its rows. Weighting "item"
            then divides by the total weight of a query, "query" by that of its pairs.
        pairs : int array of shape (l, 2), optional
            Additional preferences: row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``, labelled or not. The term
            Σ_k weight_k (magnitude_k - (f(x_h) - f(x_j)))² is added to the loss, and y may be NaN where unknown.
        magnitude, weight : array-like of shape (l,) or float, optional
            By how much, and the factor of the squared error; 1 by default.

        Returns
        -------
        self
        """
        alpha = read_alpha(self.alpha)
        if pairs is None:
            refuse_without_pairs(magnitude, weight)
            problem = Problem.read(self, X, y, qid, sample_weight, event)
            if problem.events is None:
                warn_if_equal(problem.scores)
            return self._fit_problem(problem, alpha)
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        queries = encode_queries(qid, n_items(X))
        refuse_weights_of_rows(sample_weight)
        if event is not None:
            raise ValueError(
                "event and pairs are not supported together: leave one of them out, or write what is known from event "
                "as pairs."
            )
        data = read_scores_and_pairs(self, y, pairs, magnitude, weight, n_items(X))
        scored = encode_queries(queries.codes[data.labelled], data.labelled.shape[0])
        tasks = [data.add_to(task) for task in self._compare(data.scores, scored)]
        return self._fit_problem(Problem(self, X, kernel, tasks, single=data.single, queries=queries), alpha)

    def fit_pairs(self, X, pairs, *, magnitude=None, weight=None) -> Self:
        """Learn from comparisons without scores.

        Minimises Σ_k weight_k (magnitude_k - (f(x_h) - f(x_j)))² + alpha ‖f‖² over the pairs k = (h, j).

        Parameters
        ----------
        X : as in fit
        pairs : int array of shape (l, 2)
            Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``.
        magnitude : array-like of shape (l,) or float, optional
            By how much; 1 by default.
        weight : array-like of shape (l,) or float, optional
            Factor of the pair's squared error; 1 by default.

        Returns
        -------
        self

        Examples
        --------
        >>> from preflearn import RankRLS
        >>> RankRLS().fit_pairs([[0.0], [1.0], [2.0]], [[2, 1], [1, 0]]).rank([[0.0], [3.0]])
        array([2, 1])
        """
        alpha = read_alpha(self.alpha)
        self._refuse_score_options()
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=True)
        pairs = read_pairs(pairs, n_items(X))
        magnitude = read_per_pair(magnitude, pairs.shape[0], "magnitude")
        weight = read_per_pair(weight, pairs.shape[0], "weight", positive=True)
        task = PreferenceComparisons(n_items(X), pairs, magnitude, weight)
        return self._fit_problem(Problem(self, X, kernel, [task]), alpha)

    @AvailableUnless(why_no_partial_fit)
    def partial_fit(self, X, y, *, qid=None) -> Self:
        """Add whole queries to a model of fixed width; the result equals `fit` on everything seen.

        Parameters
        ----------
        X, y, qid : as in fit
            With `qid`, rows of a query must come in one call. Without, the rows of all calls form one global ranking.
            For a kernel, the basis vectors are chosen from the rows of the first call.

        Returns
        -------
        self
        """
        self._update(X, y, qid, forget=False)
        return self

    def forget(self, X, y, *, qid=None) -> Self:
        """Remove queries (or rows of a global ranking) that `partial_fit` has seen from the model again.

        Parameters
        ----------
        X, y, qid : as they were given to partial_fit
            Whole queries when there are queries.

        Returns
        -------
        self
        """
        if getattr(self, "_incremental", None) is None:
            raise ValueError(
                "forget removes what partial_fit has added, and this model was not trained by partial_fit."
            )
        self._update(X, y, qid, forget=True)
        return self

    def fit_stream(self, chunks, *, checkpoint=None, checkpoint_every=None, verbose=None, **reading) -> Self:
        """Learn from more rows than fit in memory, in one pass over chunks of whole queries.

        The result is that of `fit` on all rows. A chunk is added to statistics of fixed width (n × n for n features or
        basis vectors) and discarded.

        Parameters
        ----------
        chunks : path, list of paths, iterable, or function that returns an iterable
            Files are read by `preflearn.io.iter_ranking`, one chunk ahead in another thread. Otherwise the chunks
            themselves: `preflearn.io.RankingData`, (X, y, qid) or (X, y). Rows of a query must come in one chunk;
            chunks without qid form one global ranking. A path, a list and a function can be read more than once.
        checkpoint : path, optional
            A file to save the progress in. If it exists, training resumes where it ended: what has been seen is
            skipped, not computed again, and the model is the same to the last bit. A checkpoint of other data or
            parameters is refused (alpha may change). The file is kept afterwards, so that training can resume when the
            data file has grown.
        checkpoint_every : int or float, optional
            Chunks (int) or seconds (float) between two checkpoints; 60.0 by default. An interrupt (Ctrl-C) also
            writes one.
        verbose : int, optional
            Show progress; by default as the model's own parameter says.
        **reading
            Options of `iter_ranking` for files, such as ``rows=100_000`` or ``target="relevance"``.

        Returns
        -------
        self

        Notes
        -----
        For a kernel, give `n_basis` as an int. A source that can be read more than once is sampled uniformly in a
        first pass (reservoir sampling); otherwise the basis vectors are drawn from the first chunks.
        ``stream_["basis"]`` says which, and ``stream_`` what was read.

        Examples
        --------
        >>> import numpy as np
        >>> from preflearn import RankRLS
        >>> rng = np.random.default_rng(0)
        >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
        >>> y = X @ [1.0, -2.0, 0.5]
        >>> chunks = [(X[:30], y[:30], qid[:30]), (X[30:], y[30:], qid[30:])]
        >>> streamed = RankRLS(alpha=0.1).fit_stream(chunks)
        >>> np.allclose(streamed.coef_, RankRLS(alpha=0.1).fit(X, y, qid=qid).coef_)
        True
        """
        from .streaming.models import fit_stream

        alpha = read_alpha(self.alpha)
        options = {"checkpoint": checkpoint, "checkpoint_every": checkpoint_every, "verbose": verbose}
        fit_stream(self, chunks, alpha, **options, reading=reading)
        return self

    def _update(self, X: Any, y: Any, qid: Any, *, forget: bool) -> None:
        alpha = read_alpha(self.alpha)
        state: IncrementalState | None = getattr(self, "_incremental", None)
        kernel = self._read_kernel()
        X = read_items(self, X, kernel, reset=state is None)
        scores, single = read_scores(y, n_items(X), estimator=self)
        if state is None:
            state = IncrementalState.start(
                self, X, kernel, scores.shape[1], single, with_queries=qid is not None
            )
        state.update(self, X, kernel, scores, qid, forget=forget)
        self._incremental = state
        weights, dual_coef, basis_indices, basis = state.solve(alpha)
        self._set_function(weights, dual_coef, basis_indices, basis, state.single)
        self.solver_, self.n_iter_, self.residual_ = "primal", 1, None
        self.n_queries_, self.n_comparisons_ = state.n_queries, state.moments.n_comparisons

    def _comparisons_depend_on_scores(self) -> bool:
        return depends_on_scores(self.cost, self.ties)

    def _compare(
        self, scores: np.ndarray, queries: Groups, row_weights: np.ndarray | None = None
    ) -> list[Comparisons]:
        """One set of comparisons for all outputs, or one per output where they depend on the scores."""
        options = {
            "cost": self.cost,
            "ties": self.ties,
            "weighting": self.weighting,
            "row_weights": row_weights,
        }
        if self._comparisons_depend_on_scores():
            return [compare_scores(scores[:, [k]], queries, **options) for k in range(scores.shape[1])]
        return [compare_scores(scores, queries, **options)]

    def _compare_times(
        self,
        times: np.ndarray,
        events: np.ndarray,
        queries: Groups,
        row_weights: np.ndarray | None = None,
    ) -> Comparisons:
        options = {"cost": self.cost, "weighting": self.weighting, "row_weights": row_weights}
        return compare_times(times, events, queries, **options)

    def _refuse_score_options(self) -> None:
        given = {"cost": self.cost, "ties": self.ties, "weighting": self.weighting}
        default = {"cost": "magnitude", "ties": "include", "weighting": "pair"}
        ignored = [f"{name}={value!r}" for name, value in given.items() if value != default[name]]
        if ignored:
            raise ValueError(
                f"fit_pairs learns from preferences without scores, so {', '.join(ignored)} would be ignored: "
                "leave it at its default and use magnitude and weight."
            )

    def _fit_problem(self, problem: Problem, alpha: float) -> Self:
        self._train(problem, alpha, with_mean=False)
        self._incremental = None
        self.__dict__.pop("stream_", None)
        self.n_queries_ = problem.queries.n_groups
        self.n_comparisons_ = sum(task.n_comparisons for task in problem.tasks)
        return self
