"""Bradley-Terry models: preferences with probabilities, and the best next question.

P(h over j) = 1 / (1 + e^{-(f_h - f_j)}),    min  Σ w log(1 + e^{-(f_h - f_j)}) + alpha ‖f‖²

Read as a Gaussian process with prior covariance K / 2 alpha, the Hessian at the minimum gives a posterior: how certain
each score is, and which answer would be most informative.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable
from dataclasses import replace
from numbers import Integral
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state

from ..comparisons.answers import Answers
from ..comparisons.inputs import read_alpha, read_pairs
from ..kernels.functions import n_items, take_items
from ..kernels.items import number_items
from ..losses.laplace import (
    MOST_DENSE_LABELS,
    LaplacePosterior,
    LatentSpace,
    find_mode,
    kernel_space,
    without_each,
)
from ..losses.logistic import estimate_reliability
from ..losses.newton import Features
from ..losses.questions import MOST_CANDIDATES, candidates, choose_pairs, random_open_pairs, read_goal
from .latent import PosteriorModel

_STRATEGIES = ("information", "random")
# Alternations between scores and reliabilities, and the relative change of r at which they stop.
_MAX_ROUNDS, _RELIABILITY_TOL = 50, 1e-3
# What can be computed again from the items and the answers.
_CACHES = ("_laplace", "_space", "_mode", "_index")


class BradleyTerryModel(PosteriorModel):
    """What BradleyTerry and BradleyTerryCV share: everything except the choice of alpha."""

    def fit_pairs(self, X, pairs, *, weight=None, ties=None, judge=None) -> Self:
        """Learn from comparisons.

        Minimises Σ_k weight_k log(1 + exp(-(f(x_h) - f(x_j)))) + alpha ‖f‖² over the pairs k = (h, j).

        Parameters
        ----------
        X : array-like or sparse of shape (m, n), kernel matrix (m, m), sequence of objects, or m labels
            The items. For ``kernel="items"`` their numbers or labels.
        pairs : int array of shape (l, 2)
            Row ``pairs[k, 0]`` is preferred to row ``pairs[k, 1]``. No pairs at all leave the prior: use this to ask
            the first question.
        weight : array-like of shape (l,) or float, optional
            Factor of the pair's loss; 1 by default.
        ties : bool array of shape (l,), optional
            Which pairs were judged equal: half a win each way.
        judge : sequence of l hashable labels, optional
            Who answered. Each judge's reliability is estimated with the scores.

        Returns
        -------
        self
        """
        self._read_options()
        X = self._read_items(X, reset=True)
        answers, judges = self._read_answers(n_items(X), pairs, weight, ties, judge, {})
        self._fit_answers(X, answers, judges, judge is not None)
        return self

    def fit(self, X, y, *, weight=None, ties=None, judge=None) -> Self:
        """``fit_pairs`` with the pairs as y, as a scikit-learn pipeline calls it.

        Examples
        --------
        >>> from sklearn.pipeline import make_pipeline
        >>> from sklearn.preprocessing import StandardScaler
        >>> from preflearn import BradleyTerry
        >>> X = [[10.0], [20.0], [30.0]]
        >>> model = make_pipeline(StandardScaler(), BradleyTerry()).fit(X, [[2, 1], [1, 0]])
        >>> model.predict(X).argsort()
        array([0, 1, 2])
        """
        return self.fit_pairs(X, y, weight=weight, ties=ties, judge=judge)

    def partial_fit_pairs(self, X, pairs, *, weight=None, ties=None, judge=None) -> Self:
        """Learn from more comparisons; the result is that of ``fit_pairs`` with all of them.

        Parameters
        ----------
        X : as in fit_pairs
            The items of these pairs: those of ``fit_pairs``, some of them, or new ones. Equal rows are the same item.
        pairs, weight, ties, judge : as in fit_pairs

        Returns
        -------
        self

        Notes
        -----
        O(r²) for an answer about known items, r being the number of features, basis vectors or items, after one O(r³)
        for the first. The scores agree with those of ``fit_pairs`` to about 1e-8. Covariances are computed with
        curvatures of answers that may be off by 0.2 %, so that standard deviations differ by at most about 0.1 %. A new
        item costs O(r³) unless the kernel is linear or has a reduced set.

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> model = BradleyTerry(kernel="items").fit_pairs(["a", "b", "c"], [[0, 1]])
        >>> model.partial_fit_pairs(["a", "b", "c"], [[1, 2]]).rank(["a", "b", "c"])
        array([1, 2, 3])
        """
        if not hasattr(self, "answers_"):
            return self.fit_pairs(X, pairs, weight=weight, ties=ties, judge=judge)
        X = self._read_items(X, reset=False)
        if (judge is not None) != (self.answers_.judges is not None) and self.answers_.n_pairs:
            raise ValueError(
                "Name the judge of every answer or of none: fit_pairs and partial_fit_pairs differ."
            )
        known = {label: number for number, label in enumerate(self.reliability_)} if judge is not None else {}
        new, judges = self._read_answers(n_items(X), pairs, weight, ties, judge, known)
        numbers = self._numbers_of(X)
        fresh = np.unique(new.pairs[numbers[new.pairs] < 0]) if new.n_pairs else np.empty(0, dtype=np.int64)
        if fresh.size:
            numbers[fresh] = self._add_items(X, fresh)
        if judge is not None:
            scale = np.array([*self.reliability_.values(), *np.ones(len(judges) - len(known))])
            new = new.scaled(scale)
        n_known = n_items(self.items_)
        old = replace(self.answers_, n_rows=n_known)
        answers = old.followed_by(replace(new, n_rows=n_known, pairs=numbers[new.pairs]))
        self._update(answers, judges)
        return self

    def _fit_answers(self, X: Any, answers: Answers, judges: dict[Hashable, int], with_judges: bool) -> None:
        for name in ("reliability_", "feature_map_", "_first_rows", *_CACHES):
            self.__dict__.pop(name, None)
        space, items, numbers = self._represent(X)
        answers = replace(answers, n_rows=n_items(items), pairs=numbers[answers.pairs])
        self._solve(space, items, answers)
        if with_judges:
            self._weigh_judges(judges)
            # Its covariance belongs to earlier reliabilities: it is computed again when it is needed.
            self.__dict__.pop("_laplace", None)

    def _represent(self, X: Any) -> tuple[LatentSpace, Any, np.ndarray]:
        """Coordinates of the latent function, the items that answers refer to, and the item of each row of X."""
        self.offset_variance_ = 0.0
        item_offsets = self._read_item_offsets(self._chosen_item_offsets())
        kernel = self._read_kernel()
        every_row = np.arange(n_items(X))
        with self._more_stages()("kernel and its factor"):
            reduced = None if self.kernel == "items" else self._reduced_set(X, kernel)
            if reduced is not None:
                self.feature_map_ = reduced
                return LatentSpace(n_items(X), reduced.map_items(X, kernel)), _copied(X), every_row
            if kernel.is_linear and not item_offsets:
                return LatentSpace(n_items(X), X), _copied(X), every_row
            if kernel.is_precomputed:
                return kernel_space(X), _copied(X), every_row
            first, numbers = np.unique(number_items(X), return_inverse=True)
            self._first_rows = first
            items = take_items(X, first)
            if self.kernel == "items":
                return LatentSpace(n_items(items)), items, numbers
            if kernel.is_linear:
                variance = float(np.mean(Features(items).row_lengths() ** 2))
                self.offset_variance_ = item_offsets * max(variance, 1e-300)
                return self._linear_space(items), items, numbers
            K = np.asarray(kernel.matrix(items), dtype=np.float64)
            if item_offsets:
                self.offset_variance_ = item_offsets * max(float(np.mean(np.diagonal(K))), 1e-300)
                K[np.diag_indices_from(K)] += self.offset_variance_
            return kernel_space(K), items, numbers

    def _update(self, answers: Answers, judges: dict[Hashable, int]) -> None:
        self._move(answers)
        if answers.judges is not None:
            self._weigh_judges(judges)

    def _move(self, answers: Answers) -> None:
        """From the posterior of the answers so far to that of these."""
        posterior = getattr(self, "_laplace", None) if self._has_many_labels() else self._posterior()
        self.__dict__.pop("_mode", None)
        if isinstance(posterior, LaplacePosterior) and posterior.serves(answers):
            mode = posterior.add(answers, tol=self.tol, max_iter=self.max_iter)
            self.answers_ = answers
            self._set_mode(posterior.space, mode)
            return
        space = getattr(self, "_space", None) or self._space_again()
        start = self._mode_again(space).fit.weights
        mode = find_mode(space, answers, self.alpha_, tol=self.tol, max_iter=self.max_iter, start=start)
        self.__dict__.pop("_laplace", None)
        self.answers_, self._space = answers, space
        self._set_mode(space, mode)
        self._mode = mode

    def _add_items(self, X: Any, rows: np.ndarray) -> np.ndarray:
        """Add new items and return their numbers."""
        if self.kernel == "precomputed":
            raise ValueError(
                f"Row {rows[0]} is not a row of the kernel matrix of fit_pairs: with a precomputed kernel, new items "
                "need a new fit_pairs."
            )
        new = take_items(X, rows)
        first, numbers = np.unique(number_items(new), return_inverse=True)
        new = take_items(new, first)
        n_known = n_items(self.items_)
        kernel = self._read_kernel()
        posterior = None if self.kernel == "items" else self._posterior()
        self.items_ = _joined(self.items_, new)
        self.answers_ = replace(self.answers_, n_rows=n_items(self.items_))
        for name in ("_index", "_space", "_mode"):
            self.__dict__.pop(name, None)
        if self._keeps_coordinates(posterior):
            assert isinstance(posterior, LaplacePosterior)
            more = new if self._is_linear() else self.feature_map_.map_items(new, kernel)
            posterior.space = LatentSpace(n_items(self.items_), _joined(posterior.space.design, more))
            posterior.set_mode(posterior.weights)
        else:
            # The same function; new items have no coefficient yet.
            self._first_rows = np.arange(n_items(self.items_))
            if not hasattr(self, "coef_"):
                none = np.zeros(n_items(new))
                self._set_function(
                    None, np.append(self.dual_coef_, none)[:, None], self._first_rows, self.items_, True
                )
            self.__dict__.pop("_laplace", None)
        return n_known + numbers

    @staticmethod
    def _keeps_coordinates(posterior: Any) -> bool:
        """Whether weights of features stay the same when items are added."""
        if posterior is None or not posterior.by_features:
            return False
        return not posterior.space.offset and posterior.space.factor is None

    def _weigh_judges(self, judges: dict[Hashable, int]) -> None:
        """Scores and reliabilities in turns."""
        for _ in range(_MAX_ROUNDS):
            posterior, answers = self._posterior(), self.answers_
            variances = posterior.variances_of_differences(answers.pairs)
            mean, variance = without_each(answers, posterior.scores, variances)
            reliability = estimate_reliability(answers, mean, variance)
            change = np.abs(np.log(reliability[answers.judges] / answers.scale)).max(initial=0.0)
            if change <= _RELIABILITY_TOL:
                break
            self._move(answers.scaled(reliability))
        self.reliability_ = {label: float(reliability[number]) for label, number in judges.items()}

    def next_pairs(self, X, n=1, *, answered=None, goal=None, strategy="information") -> np.ndarray:
        """The pairs to ask about next: those whose answers are expected to be most informative.

        Parameters
        ----------
        X : as in predict
            The items to ask about; preferably those of ``fit_pairs``.
        n : int, default=1
            How many, for several judges at once. Each is chosen as if the previous ones had been answered.
        answered : int array of shape (k, 2), optional
            Pairs of rows not to be asked, in either order.
        goal : None, "everything", "top:K" or (a, b), default=None
            What is wanted: the whole order, the K best (in any order), or which of rows a and b is better.
        strategy : {"information", "random"}, default="information"

        Returns
        -------
        ndarray of int of shape (n, 2)
            Row numbers; fewer rows when fewer pairs are left.

        Notes
        -----
        O(m²) for each pair: about 0.1 seconds for 2,000 items. With more than 3,000 items, only the 128 whose scores
        are least certain are considered (for "top:K", whose place above or below the boundary is least certain; for a
        pair, the two and the most uncertain others).

        Examples
        --------
        >>> from preflearn import BradleyTerry
        >>> items = ["a", "b", "c"]
        >>> model = BradleyTerry(kernel="items").fit_pairs(items, [[0, 1]])
        >>> model.next_pairs(items, goal=(1, 2))
        array([[1, 2]])
        """
        self._check_fitted()
        if strategy not in _STRATEGIES:
            raise ValueError(f"strategy must be 'information' or 'random': found {strategy!r}.")
        if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
            raise ValueError(f"n, the number of pairs, must be an int of at least 1: found {n!r}.")
        X = self._read_items(X, reset=False)
        m = n_items(X)
        if m < 2:
            raise ValueError("There is only one item: a question needs two.")
        goal = read_goal(goal, m)
        if strategy == "random" and goal is not None:
            raise ValueError(
                "strategy='random' ignores the goal: leave goal at None, or use strategy='information'."
            )
        asked = np.empty((0, 2), dtype=np.int64)
        if answered is not None and np.size(answered):
            asked = read_pairs(answered, m)
        if self._has_many_labels() or m > MOST_DENSE_LABELS:
            return self._questions_about_many(X, int(n), asked, goal, strategy)
        closed = np.eye(m, dtype=bool)
        closed[asked[:, 0], asked[:, 1]] = closed[asked[:, 1], asked[:, 0]] = True
        if strategy == "random":
            rows, columns = np.nonzero(~(closed | np.tri(m, dtype=bool)))
            rng = check_random_state(self.random_state)
            drawn = rng.choice(rows.shape[0], min(int(n), rows.shape[0]), replace=False)
            return np.stack([rows[drawn], columns[drawn]], axis=1)
        mean, covariance = self._posterior_for_questions(X)
        return choose_pairs(mean, covariance, int(n), closed=closed, goal=goal)

    def _questions_about_many(
        self, X: Any, n: int, asked: np.ndarray, goal: int | tuple[int, int] | None, strategy: str
    ) -> np.ndarray:
        """Questions about some of very many items: those that the model is least certain about."""
        m = n_items(X)
        if strategy == "random":
            return random_open_pairs(m, n, asked, check_random_state(self.random_state))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the choice of candidates need not be exact
            mean, variance = self.posterior(X, variances_only=True)
        rows = candidates(mean, variance, max(MOST_CANDIDATES, int(np.ceil(3.0 * np.sqrt(n)))), goal)
        mean, covariance = self.posterior(take_items(X, rows))
        position = np.full(m, -1)
        position[rows] = np.arange(rows.shape[0])
        among = position[asked]
        among = among[(among >= 0).all(axis=1)]
        closed = np.eye(rows.shape[0], dtype=bool)
        closed[among[:, 0], among[:, 1]] = closed[among[:, 1], among[:, 0]] = True
        if isinstance(goal, tuple):
            goal = int(position[goal[0]]), int(position[goal[1]])
        elif goal is not None:
            # Of the k best of all, about this many are among the candidates.
            goal = rows.shape[0] // 2
        return rows[choose_pairs(mean, covariance, n, closed=closed, goal=goal)]

    def _posterior_for_questions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Like `posterior`, without a copy of the covariance where X is the known items."""
        posterior = self._posterior()
        if isinstance(posterior, LaplacePosterior) and not posterior.by_features:
            numbers = self._known_or_refused(X)
            if np.array_equal(numbers, np.arange(posterior.covariance.shape[0])):
                return posterior.mean, posterior.covariance
        return self.posterior(X)

    def __getstate__(self):
        # Neither pickled nor saved: they are larger than the model.
        state = dict(super().__getstate__())
        for name in _CACHES:
            state.pop(name, None)
        return state


class BradleyTerry(BradleyTerryModel):
    """Bradley-Terry model with features: preferences with probabilities.

    P(h over j) = 1 / (1 + exp(-(f(x_h) - f(x_j)))). Minimises Σ w log(1 + exp(-(f(x_h) - f(x_j)))) over the preferences
    plus alpha ‖f‖². Scores of new items, their uncertainty, and the best next question follow from the same
    solution.

    Parameters
    ----------
    alpha : float, default=1.0
        Regularisation λ, positive: the prior covariance of the latent scores is K / 2 alpha.
    kernel : str or callable, default="linear"
        A name of ``sklearn.metrics.pairwise.pairwise_kernels``, ``"precomputed"``, a function of two items, or
        ``"items"``: every item has its own score, the classical Bradley-Terry model; X then holds numbers or labels.
    gamma, degree, coef0, kernel_params
        Parameters of the kernel; one that the kernel does not take is refused.
    item_offsets : float, default=0.0
        Variance of a free offset of each item in addition to its features, relative to the mean variance that the
        kernel gives. With 0 the features determine the score; 1 means that they explain half of it. Equal rows are the
        same item: to distinguish items with equal features, add a column of tiny distinct numbers.
    n_basis : None, int or float, default=None
        Number of basis vectors of the reduced set, or their fraction of the rows; None for the full kernel.
    basis : "uniform" or array of int, default="uniform"
        How the basis vectors are chosen.
    random_state : int, RandomState or None
        For the draw of basis vectors and for random questions.
    tol : float, default=1e-14
        Relative accuracy of the objective.
    max_iter : int, default=100
        Newton steps.
    verbose : int, default=0
        Print each stage with its time.

    Attributes
    ----------
    coef_ : ndarray of shape (n,)
        Linear kernel without offsets and without a reduced set.
    dual_coef_, basis_, basis_indices_
        Otherwise: coefficients of the basis vectors, the basis vectors (None for a precomputed kernel), and their rows.
    feature_coef_ : ndarray of shape (n,)
        Linear kernel with offsets: the weights of the features; an item scores x · feature_coef_ plus its own offset,
        which is offset_variance_ times its dual_coef_.
    reliability_ : dict
        With judges: the factor of each judge's differences, by label. 1 is average, 0 means random answers.
    alpha_ : float
        The alpha of the fit.
    gamma_ : float
        With ``gamma="median"`` or ``"scale"``: the number that the rule has become.
    offset_variance_ : float
        Of each item's offset, as an addition to the kernel's diagonal.
    objective_ : float
        Sum of the losses plus alpha ‖f‖² at the solution.
    The distinct items, and the answers about them.
    n_iter_ : int
    n_comparisons_ : int

    See Also
    --------
    BradleyTerryCV : Chooses alpha, the width of the kernel and the offsets.

    Notes
    -----
    Newton's method with conjugate gradients: O(l + nnz(X)) for each product. The posterior costs O(r³) once, where r is
    the smaller of the numbers of features and items, or that of basis vectors for a reduced set, or of items for a
    kernel.

    References
    ----------
    Bradley and Terry, "Rank analysis of incomplete block designs", Biometrika 39 (1952). Chu and Ghahramani,
    "Preference learning with Gaussian processes", ICML 2005.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import BradleyTerry
    >>> X = np.array([[0.0, 1.0], [1.0, 0.0], [2.0, 1.0], [3.0, 0.0]])
    >>> model = BradleyTerry(alpha=0.1).fit_pairs(X, [[3, 0], [3, 1], [2, 0], [1, 0]])
    >>> model.rank(X)
    array([4, 3, 2, 1])
    >>> bool(model.win_probability(X[[3]], X[[0]])[0] > 0.8)
    True
    """

    def __init__(
        self, alpha=1.0, *, kernel="linear", gamma=None, degree=3, coef0=1, kernel_params=None,
        item_offsets=0.0, n_basis=None, basis="uniform", random_state=None, tol=1e-14, max_iter=100,
        verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alpha, self.item_offsets, self.tol, self.max_iter = alpha, item_offsets, tol, max_iter

    def _read_options(self) -> None:
        read_alpha(self.alpha)
        super()._read_options()

    def _chosen_alpha(self) -> float:
        return read_alpha(self.alpha)


def _copied(X: Any) -> Any:
    return X.copy() if hasattr(X, "copy") else list(X)


def _joined(X: Any, more: Any) -> Any:
    if sp.issparse(X):
        return sp.vstack([X, more], format="csr")
    return [*X, *more] if isinstance(X, list) else np.concatenate([X, more])
