"""The campaign against exact arithmetic for preferences: `BradleyTerry`, its posterior and its updates.

As in `test_campaign`: alpha runs from 2^-30 to 2^30 and the scale of the features from 1e-100 to 1e100. The oracle is
Newton's method in arithmetic of 80 digits and more (`rationals.ExactBradleyTerry`). Each answer is right to 1e-6 of the
largest exact one, or comes with a warning that says why it is not.
"""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from preflearn import BradleyTerry
from rationals import ExactBradleyTerry, exact_kernel, exactly, relative_error
from test_campaign import ALPHAS, LONG, SCALES, SEEDS, TOLERANCE, TRUE_REASON, short

KNOWN = 7  # items with answers; two more are new

KERNELS = {
    "linear": {},
    "offsets": {"item_offsets": 0.5},
    "small offsets": {"item_offsets": 2.0**-20},
    "rbf": {"kernel": "rbf", "gamma": 0.5},
    "rbf offsets": {"kernel": "rbf", "gamma": 0.5, "item_offsets": 1.0},
    "items": {"kernel": "items"},
}
SHAPES = ["contradictory", "consistent", "mixed", "apart", "weights", "ties", "far away", "wide"]
# What the short version leaves to the long one.
LONG_ONLY = {
    ("small offsets", "ties"),
    ("small offsets", "wide"),
    ("small offsets", "consistent"),
    ("rbf", "ties"),
    ("rbf", "wide"),
    ("rbf offsets", "weights"),
    ("rbf offsets", "wide"),
    ("offsets", "ties"),
    ("linear", "ties"),
}


def make_data(shape: str, seed: int):
    """Items, the new ones last, and answers with their options."""
    rng = np.random.default_rng([seed, len(shape)])
    n = 12 if shape == "wide" else 3
    X = short(rng.normal(size=(KNOWN + 2, n)))
    f = X @ rng.normal(size=n)
    pairs = np.array([rng.choice(KNOWN, 2, replace=False) for _ in range(14)])
    options = {}
    if shape in ("consistent", "mixed"):
        pairs = np.where((f[pairs[:, 0]] > f[pairs[:, 1]])[:, None], pairs, pairs[:, ::-1])
    if shape == "mixed":
        # The first items contradict each other, the others are behind them each time.
        pairs = np.array([[0, 1], [1, 2], [2, 0], [1, 0], [0, 3], [1, 4], [2, 5], [3, 4], [4, 5], [5, 6]])
    if shape == "apart":
        pairs = np.array([[0, 1], [1, 0], [1, 2], [3, 4], [4, 5], [5, 3], [5, 3]])
    if shape == "weights":
        options["weight"] = 10.0 ** rng.integers(-6, 7, size=14)
    if shape == "ties":
        options["ties"] = rng.random(14) < 0.4
    if shape == "far away":
        X = X + np.array([2.0**30, -(2.0**20), 0.0])
    return X, pairs, options


_SOLVED: dict[tuple, ExactBradleyTerry] = {}


class Case:
    """One problem, what the library says and what is exact."""

    def __init__(self, kernel: str, shape: str, seed: int, alpha: float, scale: float):
        self.label = f"{kernel}, {shape}, seed {seed}, alpha {alpha:.0e}, scale {scale:.0e}"
        X, self.pairs, self.options = make_data(shape, seed)
        self.settings, self._key = KERNELS[kernel], (kernel, shape, seed, alpha, scale)
        self.items = np.arange(KNOWN + 2) if kernel == "items" else X * scale
        self.alpha = alpha

    def fit(self) -> BradleyTerry:
        return BradleyTerry(self.alpha, **self.settings).fit_pairs(
            self.items[:KNOWN], self.pairs, **self.options
        )

    def exact(self, scale=None) -> ExactBradleyTerry:
        """The oracle; ``scale`` of the answers, by their judges."""
        if scale is not None:
            return self._solve(scale)
        if self._key not in _SOLVED:
            _SOLVED[self._key] = self._solve()
        return _SOLVED[self._key]

    def _solve(self, scale=None) -> ExactBradleyTerry:
        ties = self.options.get("ties", np.zeros(len(self.pairs), dtype=bool))
        return ExactBradleyTerry(
            exact_kernel(self.items, known=KNOWN, **self.settings),
            self.pairs,
            self.alpha,
            self.options.get("weight"),
            np.where(ties, 0.5, 1.0),
            scale,
        )


def cases(kernel: str, shape: str):
    # The width of an RBF kernel has a scale of its own, and labels have none.
    scales = SCALES if kernel in ("linear", "offsets", "small offsets") else [1.0]
    for seed in SEEDS:
        for scale in scales:
            for alpha in ALPHAS:
                yield Case(kernel, shape, seed, alpha, scale)


def check(kernel: str, shape: str, answer, exact) -> None:
    """Compare answer(case) with exact(case), lists of vectors; report all that are neither right nor warned of."""
    wrong, n_right, n = [], 0, 0
    for case in cases(kernel, shape):
        n += 1
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                found = answer(case)
            except ValueError as error:
                if isinstance(error, np.linalg.LinAlgError) or not TRUE_REASON.search(str(error)):
                    wrong.append(f"{case.label}: refused for another reason: {error}")
                continue
        warned = [w for w in caught if issubclass(w.category, ConvergenceWarning)]
        if warned:
            wrong += [f"{case.label}: {w.message}" for w in warned if not TRUE_REASON.search(str(w.message))]
            continue
        errors = [relative_error(*both) for both in zip(found, exact(case), strict=True)]
        n_right += 1
        if not max(errors) <= TOLERANCE:
            wrong.append(f"{case.label}: off by {', '.join(f'{error:.1e}' for error in errors)}")
    assert not wrong, f"{len(wrong)} of {n} wrong:\n" + "\n".join(wrong[:40])
    assert n_right >= 0.4 * n, f"only {n_right} of {n} answers came without a warning"


EVERY = [
    (kernel, shape)
    for kernel in KERNELS
    for shape in SHAPES
    if not (kernel == "items" and shape in ("far away", "wide"))
    and not ("rbf" in kernel and shape == "far away")
    and (LONG or (kernel, shape) not in LONG_ONLY)
]
EVERY_PROBLEM = pytest.mark.parametrize(("kernel", "shape"), EVERY, ids=[f"{k}-{s}" for k, s in EVERY])


@EVERY_PROBLEM
def test_scores(kernel, shape) -> None:
    check(kernel, shape, lambda case: [case.fit().predict(case.items)], lambda case: [case.exact().scores()])


@EVERY_PROBLEM
def test_posterior_and_probabilities(kernel, shape) -> None:
    """Mean, covariance and probabilities, of known items and of new ones."""
    a, b = [0, 1, 3, 0, 7], [1, 2, 5, 7, 8]

    def answer(case):
        model = case.fit()
        mean, covariance = model.posterior(case.items)
        variances = model.posterior(case.items, variances_only=True)[1]
        return mean, covariance.ravel(), variances, model.win_probability(case.items[a], case.items[b])

    def exact(case):
        oracle = case.exact()
        C = oracle.covariance
        n = C.nrows()
        covariance = [exactly(C[i, j]) for i in range(n) for j in range(n)]
        diagonal = [exactly(C[i, i]) for i in range(n)]
        p = [oracle.win_probability(h, j) for h, j in zip(a, b, strict=True)]
        return oracle.scores(), covariance, diagonal, p

    check(kernel, shape, answer, exact)


@EVERY_PROBLEM
def test_answers_that_come_later(kernel, shape) -> None:
    """`partial_fit_pairs`, new items included, ends where `fit_pairs` would."""

    def answer(case):
        n = len(case.pairs)
        some = {name: value[: n // 2] for name, value in case.options.items()}
        model = BradleyTerry(case.alpha, **case.settings)
        model.fit_pairs(case.items[:KNOWN], case.pairs[: n // 2], **some)
        # One by one, or in the short version one, two, and the others.
        ends = [*range(n // 2, n), n] if LONG else [n // 2, n // 2 + 1, n // 2 + 3, n]
        for first, last in pairwise(ends):
            more = {name: value[first:last] for name, value in case.options.items()}
            model.partial_fit_pairs(case.items[:KNOWN], case.pairs[first:last], **more)
        return [model.predict(case.items)]

    check(kernel, shape, answer, lambda case: [case.exact().scores()])


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("alpha", ALPHAS)
def test_answers_that_cancel_are_no_reason_to_warn(kernel, alpha) -> None:
    """The exact scores are 0: rounding is all there is of them, and no alpha changes that."""
    X = np.arange(KNOWN) if kernel == "items" else make_data("mixed", 0)[0][:KNOWN]
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        for pairs, ties in (([[0, 1]], [True]), ([[0, 1], [1, 0]], None), ([[0, 1], [1, 2], [2, 0]], None)):
            model = BradleyTerry(alpha, **KERNELS[kernel]).fit_pairs(X, pairs, ties=ties)
            np.testing.assert_allclose(model.predict(X), 0.0, atol=1e-12)
        model.partial_fit_pairs(X, [[3, 4]]).partial_fit_pairs(X, [[4, 3]])
        np.testing.assert_allclose(model.predict(X), 0.0, atol=1e-12)


@pytest.mark.parametrize("kernel", ["linear", "offsets", "rbf", "items"])
def test_judges(kernel) -> None:
    """The scores are the mode at the reliabilities that the model has found."""
    judge = ["ann", "bob"] * 7
    found: dict[str, BradleyTerry] = {}

    def answer(case):
        case.options["judge"] = judge
        found[case.label] = case.fit()
        return [found[case.label].predict(case.items)]

    def exact(case):
        return [case.exact(found[case.label].answers_.scale).scores()]

    check(kernel, "contradictory", answer, exact)
