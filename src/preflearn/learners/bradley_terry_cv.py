"""BradleyTerryCV: alpha, the width of the kernel and the offsets chosen by held-out log loss of preferences.

Leave-preference-out costs nothing beyond the posterior of each candidate: with c the posterior variance of a difference
and v the curvature of its answer, the model without the answer has the variance c / (1 - v c) and a difference that is
lower by c g / (1 - v c), to second order (`losses.laplace.without_each`). Folds and judges are held out by
refitting, each path of alphas from the largest down.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from itertools import product
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, manhattan_distances
from sklearn.model_selection import KFold

from ..comparisons import encode_queries
from ..comparisons.answers import Answers
from ..comparisons.inputs import read_alpha
from ..kernels.functions import n_items, take_items
from ..losses.labels import LabelPosterior
from ..losses.laplace import (
    MOST_DENSE_LABELS,
    LaplacePosterior,
    LatentSpace,
    find_mode,
    posterior_at,
    without_each,
)
from ..losses.logistic import averaged_probability
from ..model_selection._intervals import optimism, widening
from ..model_selection._learner import EstimatingLearner
from ..model_selection._nested import (
    BY_OTHERS,
    FOLDS,
    JACKKNIFE,
    METHOD,
    NestedChoice,
    jackknife,
    students_interval,
)
from ..model_selection._performance import PerformanceEstimate
from .bradley_terry import BradleyTerry, BradleyTerryModel

# Prior variances of an average item's latent score that alphas="auto" tries.
_VARIANCES = np.logspace(2.5, -2.0, 10)
# Ratios that item_offsets="auto" tries, and factors of one over the median squared distance for gammas="auto".
_OFFSETS = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
_WIDTHS = (0.25, 1.0, 4.0)
# Draws of the posterior for very many labels: the score is a mean over equally many answers.
_DRAWS = 16
# Where few answers say little, log-normal priors are added to the evidence, given by their median and the standard
# deviation of the logarithm. For an average item's variance: people who compare things neither toss coins nor are
# always right. For the offsets: whoever provides features expects them to be informative.
_USUAL_VARIANCE, _USUAL_OFFSETS = (8.0, 1.0), (0.3, 1.5)
_SCORES = ("neg_log_loss", "accuracy", "log_evidence")


@dataclass
class _Candidate:
    """One kernel: its coordinates, and the held-out predictions and scores of every alpha."""

    gamma: float | None
    item_offsets: float
    alphas: np.ndarray
    scores: np.ndarray
    probabilities: np.ndarray


@dataclass(frozen=True)
class _AnswerJudge:
    """Scores held-out probabilities of answers; the estimate is about new answers, or about those of new judges."""

    answers: Answers
    scoring: str
    tests: list[np.ndarray]
    new_judges: bool

    @property
    def limits(self) -> tuple[float, float]:
        return (0.0, 1.0) if self.scoring == "accuracy" else (-np.inf, 0.0)

    def score_part(self, numbers: np.ndarray, predictions: list[np.ndarray]) -> np.ndarray:
        rows = np.concatenate([self.tests[k] for k in numbers])
        values = np.concatenate(predictions, axis=1)[:, :, 0]
        return np.array([self.score(rows, p) for p in values])

    def score(self, rows: np.ndarray, p: np.ndarray) -> float:
        p = np.clip(p, 1e-15, 1.0 - 1e-15)
        y, weight = self.answers.share[rows], self.answers.weight[rows]
        if self.scoring == "accuracy":
            right = np.where((y == 0.5) | (p == 0.5), 0.5, p > 0.5)
            return float(np.average(right, weights=weight))
        return float(np.average(y * np.log(p) + (1.0 - y) * np.log1p(-p), weights=weight))

    def estimate(self, predictions: list[np.ndarray], fitted: np.ndarray) -> PerformanceEstimate:
        rows = np.concatenate(self.tests)
        p, n = np.concatenate(predictions, axis=1)[0, :, 0], rows.shape[0]
        judges = self.answers.judges
        owners = encode_queries(judges[rows] if self.new_judges and judges is not None else rows, n)
        what = "judges" if self.new_judges else "answers"
        lost = optimism(2.0 * self.answers.share[rows] - 1.0, p - 0.5, fitted[rows])
        variance, n_blocks = jackknife(lambda some: self.score(rows[some], p[some]), owners)
        variance *= widening(lost)
        value = self.score(rows, p)
        low, high = students_interval(value, variance, n_blocks)
        least, most = self.limits
        return PerformanceEstimate(
            value=value,
            interval=(max(low, least), min(high, most)),
            method=METHOD,
            n_pairs=n,
            measure=self.scoring.replace("_", " "),
            n_rows=n,
            standard_error=float(np.sqrt(variance)),
            compared=FOLDS.format(len(self.tests), "answers", "it", BY_OTHERS),
            interval_method=JACKKNIFE.format(n_blocks, what),
            counted=f"{owners.n_groups:,} judges, {n:,} answers" if self.new_judges else f"{n:,} answers",
        )


class BradleyTerryCV(EstimatingLearner, BradleyTerryModel):
    """`BradleyTerry` with alpha, the width of the kernel and the offsets chosen by held-out preferences.

    Parameters
    ----------
    alphas : "auto" or array-like, default="auto"
        Candidates. "auto": ten values at which an average item's latent score has a prior variance from 300 to 0.01.
    gammas : None, "auto" or array-like, default=None
        Candidates for ``gamma`` of the kernel. "auto": one over the median squared distance (distance for the
        Laplacian kernel), a quarter of that and four times that. None keeps ``gamma``.
    item_offsets : float, "auto" or array-like, default=0.0
        As in `BradleyTerry`, or candidates. "auto": 0.03, 0.1, 0.3, 1, 3, 10 and 100, from features nearly alone to
        items nearly alone; not 0, with which a model can never learn anything that is not in the features.
    cv : "leave-preference-out", "leave-judge-out", int or iterable of index arrays, default="leave-preference-out"
        What is held out: each preference in turn (by an approximation that needs no refitting), all answers of a judge,
        one of this many folds of preferences drawn at random, or these sets of preferences.
    scoring : {"neg_log_loss", "accuracy", "log_evidence"}, default="neg_log_loss"
        Of the held-out preferences: minus their mean log loss, or the share in the right order. "log_evidence" is the
        log marginal likelihood by Laplace's approximation, per preference: use it when the questions were chosen by
        `next_pairs`. Such questions are the ones that the model was least certain about, so that held-out answers look
        like coin tosses and favour a model that predicts nothing. Wide log-normal priors around an average variance of
        8 and offsets of 0.3 decide where there is little evidence.
    keep_predictions : bool, default=False
        Keep the held-out probabilities in ``cv_predictions_``.
    kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, tol, max_iter, verbose
        As in `BradleyTerry`.

    Attributes
    ----------
    alpha_ : float
        The chosen alpha; the largest of equally good ones.
    gamma_ : float or None
        The chosen gamma.
    item_offsets_ : float
        The chosen offsets.
    alphas_ : ndarray of shape (a,)
        The candidates of the chosen kernel, as given.
    cv_scores_ : ndarray of shape (a,)
        Held-out score of each alpha with the chosen kernel; greater is better.
    best_score_ : float
        The best of the held-out scores.
    estimate_ : PerformanceEstimate
        That score for new answers (of new judges with ``cv="leave-judge-out"``), with a 95 % interval; as in
        `RankRLSCV`. Not there with ``scoring="log_evidence"``, which holds nothing out.
    kernel_scores_ : list of dict
        The best score and alpha of each combination of gamma and offsets that was tried.
    cv_predictions_ : ndarray of shape (a, l)
        With ``keep_predictions``: the held-out probability of each preference at each alpha.
    coef_, dual_coef_, basis_, basis_indices_, reliability_, offset_variance_, objective_, items_, answers_, n_iter_,
    n_comparisons_
        Of the model of all preferences, as in `BradleyTerry`.

    Notes
    -----
    O(r³) for each candidate; with ``kernel="items"`` and more than 3,000 compared labels 16 draws of the posterior
    instead, from which the variances of held-out differences are estimated (`losses.labels`). That is faster with
    fewer labels too (2,000: a fifth of the time), but farther from refitting: on 1,000 and 2,000 generated labels,
    single held-out probabilities differed from the dense form's by up to 0.03 (0.0004 on average) and scores by up to
    1e-4. With judges, their reliabilities are estimated once for each kernel, at the middle alpha, for the choice, and
    again with the chosen model.

    Examples
    --------
    >>> import numpy as np
    >>> from preflearn import BradleyTerryCV
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(30, 3))
    >>> pairs = np.array([rng.choice(30, 2, replace=False) for _ in range(100)])
    >>> won = X[pairs[:, 0], 0] > X[pairs[:, 1], 0]
    >>> model = BradleyTerryCV().fit_pairs(X, np.where(won[:, None], pairs, pairs[:, ::-1]))
    >>> model.best_score_ > -0.3
    True
    """

    _LEAVE_ONE = "leave-preference-out"

    def __init__(
        self, alphas="auto", *, gammas=None, item_offsets=0.0, cv="leave-preference-out",
        scoring="neg_log_loss", keep_predictions=False, kernel="linear", gamma=None, degree=3, coef0=1,
        kernel_params=None, n_basis=None, basis="uniform", random_state=None, tol=1e-14, max_iter=100,
        verbose=0,
    ) -> None:  # fmt: skip
        super().__init__(kernel, gamma, degree, coef0, kernel_params, n_basis, basis, random_state, verbose)
        self.alphas, self.gammas, self.item_offsets, self.cv = alphas, gammas, item_offsets, cv
        self.scoring, self.keep_predictions, self.tol, self.max_iter = (
            scoring,
            keep_predictions,
            tol,
            max_iter,
        )

    def _chosen_alpha(self) -> float:
        return self.alpha_

    def _chosen_gamma(self) -> Any:
        return getattr(self, "gamma_", self.gamma)

    def _chosen_item_offsets(self) -> Any:
        return self.item_offsets_

    def _fitted_arrays(self) -> dict[str, str]:
        if "answers_" not in vars(self):
            return {}
        return {**super()._fitted_arrays(), "alphas_": "a", "cv_scores_": "a"}

    def _fit_answers(self, X: Any, answers: Answers, judges: dict[Hashable, int], with_judges: bool) -> None:
        if self.scoring not in _SCORES:
            raise ValueError(
                f"scoring must be 'neg_log_loss', 'accuracy' or 'log_evidence': found {self.scoring!r}."
            )
        if self.scoring == "log_evidence" and self.cv != self._LEAVE_ONE:
            raise ValueError(
                f"scoring='log_evidence' holds nothing out, so cv={self.cv!r} would be ignored: leave cv at its "
                "default."
            )
        folds = self._read_folds(answers, with_judges)
        candidates = [
            self._try(X, answers, judges, gamma, offsets, folds)
            for gamma, offsets in product(self._read_gammas(X), self._read_offsets())
        ]
        best = max(candidates, key=lambda candidate: candidate.scores.max())
        at = max(np.flatnonzero(best.scores == best.scores.max()), key=lambda k: best.alphas[k])
        self.gamma_, self.item_offsets_ = best.gamma, best.item_offsets
        self.alphas_, self.cv_scores_ = best.alphas, best.scores
        self.alpha_, self.best_score_ = float(best.alphas[at]), float(best.scores[at])
        self.kernel_scores_ = [
            {
                "gamma": one.gamma,
                "item_offsets": one.item_offsets,
                "alpha": float(one.alphas[np.argmax(one.scores)]),
                "score": float(one.scores.max()),
            }
            for one in candidates
        ]
        self.__dict__.pop("cv_predictions_", None)
        if self.keep_predictions:
            self.cv_predictions_ = best.probabilities
        super()._fit_answers(X, answers, judges, with_judges)
        self._forget_choice()
        if self.scoring != "log_evidence":  # which holds nothing out
            judge = self._judge(answers, folds)
            nested = NestedChoice(judge)
            for one in candidates:
                nested.see(one.alphas, [one.probabilities[:, test, None] for test in judge.tests])
            items, pairs = (
                take_items(X, np.unique(answers.pairs)),
                np.unique(answers.pairs, return_inverse=True)[1],
            )
            pairs = pairs.reshape(-1, 2)

            def differences(model: Any) -> np.ndarray:
                f = np.asarray(model.predict(items))
                return f[pairs[:, 0]] - f[pairs[:, 1]]

            self._keep_choice(nested.estimate, differences)

    def _judge(self, answers: Answers, folds: list[np.ndarray] | None) -> _AnswerJudge:
        tests = list(np.arange(answers.n_pairs)[:, None]) if folds is None else folds
        return _AnswerJudge(answers, self.scoring, tests, self.cv == "leave-judge-out")

    def _try(
        self,
        X: Any,
        answers: Answers,
        judges: dict[Hashable, int],
        gamma: float | None,
        item_offsets: float,
        folds: list[np.ndarray] | None,
    ) -> _Candidate:
        """Held-out predictions with one kernel at every alpha."""
        model = self._plain_model(gamma, item_offsets)
        space, _, numbers = model._represent(X)
        alphas, prior_variance = self._read_alphas(space), space.mean_prior_variance()
        if answers.judges is not None:
            model.set_params(alpha=float(np.exp(np.mean(np.log(alphas)))))
            model._fit_answers(X, answers, judges, True)
            answers = answers.scaled(np.array(list(model.reliability_.values())))
        # Items that are not compared do not affect the posterior of those that are.
        compared, pairs = np.unique(numbers[answers.pairs], return_inverse=True)
        space = space.of_items(compared)
        answers = Answers(
            compared.shape[0], pairs.reshape(-1, 2), *_columns(answers, "weight", "share", "scale", "judges")
        )
        if (
            self.scoring == "log_evidence"
            and self.kernel == "items"
            and compared.shape[0] > MOST_DENSE_LABELS
        ):
            raise ValueError(
                f"scoring='log_evidence' needs a determinant of {compared.shape[0]} × {compared.shape[0]} numbers: "
                f"with more than {MOST_DENSE_LABELS} labels use scoring='neg_log_loss'."
            )
        with self._more_stages()(f"held-out preferences, gamma = {gamma}, offsets = {item_offsets:g}"):
            probabilities, evidence = self._path(space, answers, alphas, folds)
        if self.scoring == "log_evidence":
            variances = prior_variance / (2.0 * alphas)
            expected = _log_normal(variances, *_USUAL_VARIANCE)
            if item_offsets:
                expected = expected + _log_normal(item_offsets, *_USUAL_OFFSETS)
            scores = (evidence + expected) / answers.n_pairs
        else:
            judge = self._judge(answers, folds)
            every = np.arange(answers.n_pairs)
            scores = np.array([judge.score(every, p) for p in probabilities])
        return _Candidate(gamma, item_offsets, alphas, scores, probabilities)

    def _path(
        self, space: LatentSpace, answers: Answers, alphas: np.ndarray, folds: list[np.ndarray] | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """The held-out probabilities and the log evidence of each alpha, found from the largest down."""
        probabilities = np.empty((alphas.shape[0], answers.n_pairs))
        evidence = np.full(alphas.shape[0], np.nan)
        every = np.arange(answers.n_pairs)
        sets = [every] if folds is None else folds
        parts = [answers if folds is None else answers.take(np.delete(every, left)) for left in sets]
        modes: list[np.ndarray | None] = [None] * len(sets)
        for k in np.argsort(-alphas, kind="stable"):
            alpha = float(alphas[k])
            for number, (left, training) in enumerate(zip(sets, parts, strict=True)):
                posterior, modes[number] = self._posterior_at(space, training, alpha, modes[number])
                pairs = answers.pairs[left]
                variance = posterior.variances_of_differences(pairs)
                mean = posterior.scores[pairs[:, 0]] - posterior.scores[pairs[:, 1]]
                # An unknown judge is assumed to be average.
                scale = np.ones(left.shape[0]) if self.cv == "leave-judge-out" else answers.scale[left]
                if folds is None:
                    mean, variance = without_each(answers, posterior.scores, variance)
                probabilities[k, left] = averaged_probability(scale * mean, scale**2 * variance)
                if self.scoring == "log_evidence":
                    assert isinstance(posterior, LaplacePosterior)  # `_try` refuses this many labels
                    evidence[k] = posterior.log_evidence()
        return probabilities, evidence

    def _posterior_at(
        self, space: LatentSpace, answers: Answers, alpha: float, start: np.ndarray | None
    ) -> tuple[LaplacePosterior | LabelPosterior, np.ndarray]:
        """The posterior at one alpha and the mode, which is searched for from that of the previous one."""
        mode = find_mode(space, answers, alpha, tol=self.tol, max_iter=self.max_iter, start=start)
        posterior = posterior_at(space, answers, alpha, mode)
        if isinstance(posterior, LabelPosterior):
            posterior.n_draws = _DRAWS
        return posterior, mode.fit.weights

    def _plain_model(self, gamma: float | None, item_offsets: float) -> BradleyTerry:
        shared = BradleyTerry().get_params().keys() & self.get_params().keys()
        options = {name: getattr(self, name) for name in shared - {"gamma", "item_offsets", "verbose"}}
        return BradleyTerry(gamma=gamma, item_offsets=item_offsets, **options)

    def _read_folds(self, answers: Answers, with_judges: bool) -> list[np.ndarray] | None:
        """The sets of answers to hold out; None for each in turn without refitting."""
        n = answers.n_pairs
        if n < 2:
            raise ValueError(f"A choice by held-out preferences needs at least two of them: found {n}.")
        if isinstance(self.cv, str):
            if self.cv == self._LEAVE_ONE:
                return None
            if self.cv != "leave-judge-out":
                raise ValueError(
                    "cv must be 'leave-preference-out', 'leave-judge-out', a number of folds, or sets of preferences: "
                    f"found {self.cv!r}."
                )
            if not with_judges:
                raise ValueError("cv='leave-judge-out' needs judges: pass judge=... to fit_pairs.")
            assert answers.judges is not None
            found = [np.flatnonzero(answers.judges == k) for k in np.unique(answers.judges)]
            if len(found) < 2:
                raise ValueError("cv='leave-judge-out' needs at least two judges: found one.")
            return found
        if isinstance(self.cv, Integral) and not isinstance(self.cv, bool):
            n_folds = int(self.cv)
            if not 2 <= n_folds <= n:
                raise ValueError(f"cv, the number of folds, must be between 2 and {n}: found {n_folds}.")
            splitter = KFold(n_folds, shuffle=True, random_state=0)
            return [test for _, test in splitter.split(np.empty((n, 0)))]
        folds = [np.asarray(fold, dtype=np.int64) for fold in self.cv]
        counts = np.bincount(np.concatenate([np.empty(0, dtype=np.int64), *folds]), minlength=n)
        if counts.shape[0] != n or (counts != 1).any() or len(folds) < 2:
            raise ValueError(
                f"cv must hold every one of the {n} preferences out once, in at least two sets of row numbers of pairs."
            )
        return folds

    def _read_gammas(self, X: Any) -> list[float | None]:
        if self.gammas is None:
            return [self._chosen_gamma()]
        if self.gamma is not None:
            raise ValueError("Give gamma or gammas, not both: one of them would be ignored.")
        if isinstance(self.gammas, str):
            if self.gammas != "auto" or self.kernel not in ("rbf", "laplacian"):
                raise ValueError(
                    f"gammas must be None or positive numbers, or 'auto' for the kernels 'rbf' and 'laplacian': found "
                    f"{self.gammas!r} with kernel={self.kernel!r}."
                )
            width = 1.0 / _median_distance(X, squared=self.kernel == "rbf")
            return [width * factor for factor in _WIDTHS]
        gammas = np.atleast_1d(np.asarray(self.gammas, dtype=float))
        if gammas.ndim != 1 or gammas.size == 0 or not (np.isfinite(gammas) & (gammas > 0)).all():
            raise ValueError(f"gammas must be 'auto' or positive numbers: found {self.gammas!r}.")
        return [float(gamma) for gamma in gammas]

    def _read_offsets(self) -> list[float]:
        offsets = self.item_offsets
        if isinstance(offsets, str):
            if offsets != "auto":
                raise ValueError(f"item_offsets must be 'auto' or variance ratios: found {offsets!r}.")
            offsets = _OFFSETS
        return [
            self._read_item_offsets(one) for one in np.atleast_1d(np.asarray(offsets, dtype=float)).tolist()
        ]

    def _read_alphas(self, space: LatentSpace) -> np.ndarray:
        if isinstance(self.alphas, str):
            if self.alphas != "auto":
                raise ValueError(f"alphas must be 'auto' or positive numbers: found {self.alphas!r}.")
            return max(space.mean_prior_variance(), np.finfo(float).tiny) / (2.0 * _VARIANCES)
        alphas = np.atleast_1d(np.asarray(self.alphas, dtype=float))
        if alphas.ndim != 1 or alphas.size == 0:
            raise ValueError(
                f"alphas must be 'auto' or a list of positive numbers: found shape {alphas.shape}."
            )
        return np.array([read_alpha(float(alpha)) for alpha in alphas])


def _log_normal(value: Any, median: float, deviation: float) -> Any:
    """Logarithm of a log-normal density with respect to log value, up to a constant."""
    return -0.5 * (np.log(value / median) / deviation) ** 2


def _columns(answers: Answers, *names: str) -> tuple[Any, ...]:
    return tuple(getattr(answers, name) for name in names)


def _median_distance(X: Any, *, squared: bool, size: int = 500) -> float:
    """Median distance between different rows of a sample of this size."""
    rows = np.linspace(0, n_items(X) - 1, min(n_items(X), size)).astype(int)
    sample = take_items(X, rows)
    distances = euclidean_distances(sample, squared=True) if squared else manhattan_distances(sample)
    positive = distances[distances > 0]
    return float(np.median(positive)) if positive.size else 1.0
