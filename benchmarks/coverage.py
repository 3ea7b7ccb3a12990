"""How often does a 95 % interval of the library hold the true value? Every kind of interval, small and large samples.

Normal rows, of which the first feature adds to y (or separates two classes): no, some and nearly perfect signal. The
truth is what new rows or queries show, by formula or on many fresh ones.

    estimate_concordance  of unseen queries of 3, 5 or 20 rows, or of unequal sizes; and Student's over the queries
    estimate_auc          with 3, 5 and 15 rows of the smaller class (more kernels and features in ``auc_intervals.py``)
    evaluate_scores       concordance, NDCG@10, MAP and MRR of given scores; clustered rows; all queries perfect
    compare_rankers       the share of equally good pairs of rankers between which it finds no difference at 5 %
    estimate_             of searches and of AutoRanker, for new queries, rows, groups or preferences; and the interval
                          over the queries that takes folds as a test set
    C-index               of censored times of 20, 80 and 300 patients; signal 4 has a C of .91 at best, signal 1 of .73
    feature_influence     of a useful and of a useless feature, for a fixed model
    learning_curve        the score with all queries of a fold
    BradleyTerry          posterior of the difference of two items, 95 % of a normal distribution
    difference_std        the same for RankRLS

    python benchmarks/coverage.py [--quick] [--repeats DATA_SETS] [--only PATTERN [--to RESULTS]]
    python benchmarks/coverage.py --jobs 16 --seconds 400    # so many processes, so long
"""

from __future__ import annotations

# Scripts of this folder find this file where Numba looks for the package "coverage", which it can do without.
if __name__ != "__main__":
    raise ImportError("benchmarks/coverage.py is a script, not the package coverage")

import functools
import itertools
import re
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.base import clone
from sklearn.model_selection import KFold

from _harness import arguments, coverage_of, in_processes, write_results
from preflearn import RLSCV, AutoRanker, BradleyTerry, BradleyTerryCV, RankRLS, RankRLSCV, RankSVMCV
from preflearn.inspection import feature_influence
from preflearn.metrics import concordance, get_scorer
from preflearn.model_selection import (
    compare_rankers,
    estimate_auc,
    estimate_concordance,
    evaluate_scores,
    learning_curve,
)
from preflearn.model_selection._intervals import mean_interval, wilson_interval
from preflearn.relations import KroneckerRLSCV

STRENGTH = {"none": 0.0, "weak": 0.2, "medium": 0.4, "strong": 1.5, "all": 30.0}
UNEQUAL = (2, 3, 5, 10, 30)
NEW_QUERIES = 400
# Coverages outside of this range have a reason on the page.
ALLOWED = (0.92, 0.99)

# One data set: the estimate, the truth, the interval, and perhaps another interval to compare with.
Found = tuple[float, ...]


class Cell(NamedTuple):
    """One row of the table."""

    interval: str
    setting: str
    one: Callable[[np.random.Generator], Found]
    share: float = 1.0  # of the repeats, for slow ones


def true_concordance(coef: np.ndarray, strength: float) -> float:
    """Of a linear model, where y is this multiple of the first of independent normal features, and normal noise."""
    share = coef[0] / max(
        np.linalg.norm(coef), np.finfo(float).tiny
    )  # of the first feature in the prediction
    return float(0.5 + np.arcsin(share * strength / np.sqrt(strength**2 + 1)) / np.pi)


class Ranking(NamedTuple):
    """Queries of normal rows."""

    features: int
    signal: str
    queries: int
    rows: int | str
    kernel: str = "linear"

    def sizes(self, rng: np.random.Generator) -> np.ndarray:
        if isinstance(self.rows, str):
            return rng.choice(UNEQUAL, size=self.queries)
        return np.full(self.queries, self.rows)

    def labels(self, rng: np.random.Generator) -> np.ndarray:
        return np.repeat(np.arange(self.queries), self.sizes(rng))

    def draw(self, rng: np.random.Generator, qid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        X = rng.normal(size=(qid.shape[0], self.features))
        return X, STRENGTH[self.signal] * X[:, 0] + rng.normal(size=qid.shape[0])

    def model(self) -> RankRLS:
        return RankRLS() if self.kernel == "linear" else RankRLS(kernel="rbf", gamma=0.5 / self.features)

    def truth(self, rng: np.random.Generator, model: Any) -> float:
        if self.kernel == "linear":
            return true_concordance(model.coef_, STRENGTH[self.signal])
        qid = np.repeat(np.arange(NEW_QUERIES), 10)
        X, y = self.draw(rng, qid)
        return concordance(y, model.predict(X), qid)


def concordance_of_queries(setting: Ranking) -> Callable[[np.random.Generator], Found]:
    def one(rng: np.random.Generator) -> Found:
        qid = setting.labels(rng)
        X, y = setting.draw(rng, qid)
        found = estimate_concordance(setting.model(), X, y, qid=qid)
        truth = setting.truth(rng, setting.model().fit(X, y, qid=qid))
        return found.value, truth, *found.interval, *mean_interval(found.per_fold)[1]

    return one


def auc(rows: int, positive: int, features: int, strength: float) -> Callable[[np.random.Generator], Found]:
    def one(rng: np.random.Generator) -> Found:
        y = (np.arange(rows) < positive).astype(float)
        X = rng.normal(size=(rows, features))
        X[:, 0] += strength * y
        found = estimate_auc(RankRLS(), X, y, random_state=0)
        coef = RankRLS().fit(X, y).coef_
        truth = float(norm.cdf(strength * coef[0] / np.linalg.norm(coef) / np.sqrt(2)))
        return found.value, truth, *found.interval

    return one


def given_scores(
    metric: str, queries: int, signal: float, tied: bool = False
) -> Callable[[np.random.Generator], Found]:
    """Scores of fixed quality; graded labels. ``tied``: labels that are mostly equal."""

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        qid = np.repeat(np.arange(n), 10)
        scores = rng.normal(size=qid.shape[0])
        latent = signal * scores + rng.normal(size=qid.shape[0])
        cuts = np.sqrt(signal**2 + 1) * np.array([1.5, 2.0] if tied else [0.5, 1.0, 1.5])
        y = np.digitize(latent, cuts).astype(float)
        y[::10] = np.maximum(y[::10], 1.0 if signal < 5 else y[::10])
        return y, scores, qid

    truth = float(get_scorer(metric).per_query(*draw(np.random.default_rng(1), 20_000)).mean)

    def one(rng: np.random.Generator) -> Found:
        found = evaluate_scores(*draw(rng, queries), metrics=[metric]).metrics[0]
        return found.value, truth, *(found.interval or (np.nan, np.nan))

    return one


def no_difference(queries: int, rows: int) -> Callable[[np.random.Generator], Found]:
    """Two rankers that are equally good: the test should find a difference in 5 %."""

    def one(rng: np.random.Generator) -> Found:
        qid = np.repeat(np.arange(queries), rows)
        y, a, b = rng.normal(size=(3, qid.shape[0]))
        pvalue = compare_rankers(y, y + a, y + b, qid).pvalue
        return 0.0, 0.0, *((0.0, 0.0) if pvalue >= 0.05 else (1.0, 1.0))

    return one


class Search(NamedTuple):
    """A search, or the automatic ranker, on data of which it knows queries, groups of a single ranking, or neither."""

    model: Any
    signal: str
    units: int
    of: str = "queries"  # "rows": a single ranking; "groups": one whose rows come in groups of ten
    curved: bool = False
    within: float = 0.0  # the share of the variance of features and labels that a group has in common
    features: int = 5

    def draw(self, rng: np.random.Generator, units: int) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        size = 1 if self.of == "rows" else 10
        owner = np.repeat(np.arange(units), size)
        X, noise = rng.normal(size=(owner.size, self.features)), rng.normal(size=owner.size)
        if self.within:
            common = rng.normal(size=(units, self.features))[owner]
            X = self.within**0.5 * common + (1 - self.within) ** 0.5 * X
            noise = self.within**0.5 * rng.normal(size=units)[owner] + (1 - self.within) ** 0.5 * noise
        f = np.sin(2 * X[:, 0]) + (X[:, 1] > 0) if self.curved else X[:, 0]
        labels = {"queries": {"qid": owner}, "groups": {"groups": owner}, "rows": {}}[self.of]
        return X, STRENGTH[self.signal] * f + noise, labels

    def one(self, rng: np.random.Generator) -> Found:
        X, y, labels = self.draw(rng, self.units)
        model = clone(self.model).fit(X, y, **labels)
        found = model.estimate_
        if hasattr(model, "coef_"):  # of rows of different groups, where there are groups
            truth = true_concordance(model.coef_, STRENGTH[self.signal])
        else:
            new, y_new, labels = self.draw(rng, 2000)
            scores = model.predict(new, **labels) if isinstance(model, AutoRanker) else model.predict(new)
            truth = concordance(y_new, scores, **labels)
        plain = found.interval if self.of != "queries" else mean_interval(found.per_fold)[1]
        return found.value, truth, *found.interval, *plain


def searched_relation(signal: float, hold_out: str) -> Callable[[np.random.Generator], Found]:
    """Labels of a third of 40 x 30 pairs of objects; the truth is R² of the others, or of the labels of new objects."""

    def one(rng: np.random.Generator) -> Found:
        U, V = rng.normal(size=(40, 4)), rng.normal(size=(30, 4))
        pairs = np.array(list(itertools.product(range(40), range(30))))
        if hold_out == "entries":
            rng.shuffle(pairs)

        def labels(U: np.ndarray, pairs: np.ndarray) -> np.ndarray:
            return signal * U[pairs[:, 0], 0] * V[pairs[:, 1], 0] + rng.normal(size=len(pairs))

        known, others = (pairs[:400], pairs[400:]) if hold_out == "entries" else (pairs, pairs)
        model = KroneckerRLSCV(hold_out=hold_out, cv=5).fit_pairs_of(U, V, *known.T, labels(U, known))
        y, f = [], []
        for _ in range(20):
            new = U if hold_out == "entries" else rng.normal(size=U.shape)
            y.append(labels(new, others))
            f.append(model.predict_pairs_of(new, V, *others.T))
        found = model.estimate_
        truth = 1 - float(np.mean((np.array(y) - f) ** 2) / np.var(y))
        return found.value, truth, *found.interval, *found.interval

    return one


@functools.cache
def censoring_scale(censored: float, signal: float) -> float:
    """The scale of the times to leaving with which this share of `Patients` leaves before the event."""
    rng = np.random.default_rng(1)
    x, lived, left = rng.normal(size=200_000), *rng.exponential(size=(2, 200_000))
    return float(np.quantile(np.exp(signal * x) * lived / left, 1 - censored))


class Patients(NamedTuple):
    """Censored times of patients: proportional hazards in the first of five features."""

    model: Any
    patients: int
    censored: float
    signal: float

    def draw(self, rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X = rng.normal(size=(n, 5))
        lived = np.exp(self.signal * X[:, 0]) * rng.exponential(size=n)
        left = censoring_scale(self.censored, self.signal) * rng.exponential(size=n)
        return X, np.minimum(lived, left), lived <= left

    def one(self, rng: np.random.Generator) -> Found:
        X, times, events = self.draw(rng, self.patients)
        while events.sum() < 2:
            X, times, events = self.draw(rng, self.patients)
        model = clone(self.model).fit(X, times, event=events)
        if isinstance(model, RankRLSCV):
            found = model.estimate_
        else:
            found = estimate_concordance(self.model, X, times, event=events, random_state=0)
        new, times, events = self.draw(rng, 20_000)
        return found.value, concordance(times, model.predict(new), event=events), *found.interval


def searched_preferences(search: Any, signal: float, answers: int) -> Callable[[np.random.Generator], Found]:
    """Preferences between pairs of 60 items; the truth is the score of new answers to all pairs."""

    def one(rng: np.random.Generator) -> Found:
        X = rng.normal(size=(60, 5))
        pairs = np.array([rng.choice(60, 2, replace=False) for _ in range(answers)])

        def won(pairs: np.ndarray) -> np.ndarray:
            return signal * (X[pairs[:, 0], 0] - X[pairs[:, 1], 0]) + rng.logistic(size=len(pairs)) > 0

        pairs = np.where(won(pairs)[:, None], pairs, pairs[:, ::-1])
        model = clone(search).fit_pairs(X, pairs)
        new = rng.integers(60, size=(20_000, 2))
        new = new[new[:, 0] != new[:, 1]]
        f = model.predict(X)
        d, found, n = (f[new[:, 0]] - f[new[:, 1]]) * np.where(won(new), 1, -1), model.estimate_, len(pairs)
        if isinstance(search, BradleyTerryCV):
            return found.value, -float(np.logaddexp(0, -d).mean()), *found.interval, *found.interval
        truth = float(np.mean(d > 0))
        return (
            found.value,
            truth,
            *found.interval,
            *wilson_interval(found.value, found.value * (1 - found.value) / n, n),
        )

    return one


def influence(feature: int, units: int, of: str) -> Callable[[np.random.Generator], Found]:
    """What a fixed model loses when a feature is shuffled inside queries, or of one ranking; truth of 3,000 units.

    ``of``: what there is one of for ten rows, which in "groups" share half of the variance of features and labels.
    """
    setting = Search(None, "medium", units, of, within=0.5 if of == "groups" else 0.0)
    model = RankRLS().fit([[0.0] * 5, [1.0, 0.3, 0, 0, 0]], [0.0, 1.0])

    def measured(rng: np.random.Generator, n: int) -> Any:
        X, y, labels = setting.draw(rng, 10 * n if of == "rows" else n)
        return feature_influence(model, X, y, **labels, n_repeats=5, random_state=int(rng.integers(2**31)))

    truth = float(measured(np.random.default_rng(1), 3000).values[feature])

    def one(rng: np.random.Generator) -> Found:
        found = measured(rng, units)
        return float(found.values[feature]), truth, *found.intervals[feature]

    return one


def curve(queries: int) -> Callable[[np.random.Generator], Found]:
    """The last point of a learning curve; the truth is the mean over models trained on the same number of queries."""
    setting = Ranking(5, "medium", queries, 10)
    rng = np.random.default_rng(1)

    def trained(n: int) -> float:
        qid = np.repeat(np.arange(n), 10)
        X, y = setting.draw(rng, qid)
        return setting.truth(rng, setting.model().fit(X, y, qid=qid))

    truth = float(np.mean([trained(queries - -(-queries // 3)) for _ in range(300)]))

    def one(rng: np.random.Generator) -> Found:
        qid = setting.labels(rng)
        X, y = setting.draw(rng, qid)
        found = learning_curve(setting.model(), X, y, qid=qid, sizes=[queries - -(-queries // 3)])
        return (
            found.scores[-1],
            truth,
            found.scores[-1] - found.errors[-1],
            found.scores[-1] + found.errors[-1],
        )

    return one


def extended_curve(queries: int, features: int, signal: float) -> Callable[[np.random.Generator], Found]:
    """The score with ten times the queries, by the power law; the truth from models trained on that many."""
    most = 10 * (queries - -(-queries // 3))

    def draw(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        X, qid = rng.normal(size=(8 * n, features)), np.repeat(np.arange(n), 8)
        return X, signal * X[:, 0] + rng.normal(size=8 * n), qid

    def trained(rng: np.random.Generator) -> float:
        X, y, qid = draw(rng, most)
        return true_concordance(RankRLS(10.0).fit(X, y, qid=qid).coef_, signal)

    truth = float(np.mean([trained(np.random.default_rng(seed)) for seed in range(20)]))

    def one(rng: np.random.Generator) -> Found:
        X, y, qid = draw(rng, queries)
        found = learning_curve(RankRLS(10.0), X, y, qid=qid).extend()
        return found.scores[0], truth, found.low[0], found.high[0]

    return one


def strengths_of_items(answers: int) -> Callable[[np.random.Generator], Found]:
    """Ten items with strengths from the prior of alpha = 1/2, a standard normal distribution."""

    def one(rng: np.random.Generator) -> Found:
        f = rng.normal(size=10)
        pairs = rng.integers(10, size=(answers, 2))
        pairs = pairs[pairs[:, 0] != pairs[:, 1]]
        first = rng.random(len(pairs)) < 1 / (1 + np.exp(f[pairs[:, 1]] - f[pairs[:, 0]]))
        model = BradleyTerry(0.5, kernel="items").fit_pairs(
            list(range(10)), np.where(first[:, None], pairs, pairs[:, ::-1])
        )
        mean, C = model.posterior([0, 1])
        half = 1.96 * np.sqrt(C[0, 0] + C[1, 1] - 2 * C[0, 1])
        d = mean[0] - mean[1]
        return d, f[0] - f[1], d - half, d + half

    return one


def differences(setting: Ranking) -> Callable[[np.random.Generator], Found]:
    def one(rng: np.random.Generator) -> Found:
        qid = setting.labels(rng)
        X, y = setting.draw(rng, qid)
        model = RankRLS().fit(X, y, qid=qid)
        a, b = rng.normal(size=(2, 1, setting.features))
        d = float(model.predict(a)[0] - model.predict(b)[0])
        half = 1.96 * float(model.difference_std(a, b)[0])
        return d, STRENGTH[setting.signal] * float(a[0, 0] - b[0, 0]), d - half, d + half

    return one


def cells() -> Iterator[Cell]:
    sizes = (3, 5, 20, "unequal")
    settings = [
        Ranking(5, *each)
        for each in itertools.product(("none", "medium", "strong"), (10, 20, 50, 200), sizes)
    ]
    settings += [
        Ranking(features, signal, 20, rows)
        for features, signal, rows in itertools.product((1, 20), ("none", "medium", "strong"), sizes)
    ]
    settings += [
        Ranking(5, signal, 20, rows, "rbf")
        for signal, rows in itertools.product(("none", "medium", "strong"), (5, "unequal"))
    ]
    settings += [Ranking(5, "all", queries, 10) for queries in (20, 100)]
    for one in settings:
        name = (
            f"{one.kernel}, {one.features} features, signal {one.signal}, {one.queries} queries of {one.rows}"
        )
        yield Cell("estimate_concordance", name, concordance_of_queries(one))
    for (rows, positive), features, strength in itertools.product(
        ((30, 3), (30, 5), (30, 15), (100, 3), (100, 50)), (1, 5, 20), (0.0, 0.7, 2.0)
    ):
        name = f"{positive} of {rows} rows positive, {features} features, distance {strength:g}"
        yield Cell("estimate_auc", name, auc(rows, positive, features, strength))
    for metric, queries, signal in itertools.product(
        ("concordance", "ndcg@10", "average_precision", "reciprocal_rank"), (10, 30, 200), (0.0, 1.0, 5.0)
    ):
        yield Cell(
            "evaluate_scores",
            f"{metric}, {queries} queries, signal {signal:g}",
            given_scores(metric, queries, signal),
        )
    for queries in (10, 30, 200):
        yield Cell(
            "evaluate_scores",
            f"concordance, {queries} queries, ties",
            given_scores("concordance", queries, 1.0, True),
        )
    for queries, rows in itertools.product((10, 50), (5, 20)):
        yield Cell(
            "compare_rankers", f"{queries} queries of {rows}, no difference", no_difference(queries, rows)
        )
    yield from cells_of_searches()
    yield from cells_of_patients()
    for feature, queries in itertools.product((0, 1), (10, 50)):
        what = "useful" if feature == 0 else "useless"
        for of, name in (
            ("queries", f"{queries} queries"),
            ("rows", f"one ranking of {10 * queries} rows"),
            ("groups", f"one ranking, {queries} groups of ten rows"),
        ):
            yield Cell("feature_influence", f"{what} feature, {name}", influence(feature, queries, of))
    for queries in (30, 90):
        yield Cell("learning_curve", f"last point, {queries} queries", curve(queries))
    for queries, features, signal in (
        (30, 10, 0.3),
        (30, 40, 0.3),
        (30, 10, 1.0),
        (90, 40, 0.3),
        (90, 20, 0.15),
    ):
        name = f"ten times {queries} queries, {features} features, signal {signal:g}"
        yield Cell("learning_curve", name, extended_curve(queries, features, signal))
    for answers in (20, 100, 1000):
        yield Cell("BradleyTerry", f"10 items, {answers} answers", strengths_of_items(answers))
    for signal, queries, rows in itertools.product(("none", "medium", "strong"), (20, 100), (5, "unequal")):
        yield Cell(
            "difference_std",
            f"signal {signal}, {queries} queries of {rows}",
            differences(Ranking(5, signal, queries, rows)),
        )


def cells_of_patients() -> Iterator[Cell]:
    for patients, censored, signal in itertools.product((20, 80, 300), (0.2, 0.5, 0.8), (0.0, 1.0, 4.0)):
        name = f"{patients} patients, {censored:.0%} censored, signal {signal:g}"
        one = Patients(RankRLS(), patients, censored, signal).one
        yield Cell("C-index", f"estimate_concordance, {name}", one)
        if patients * (1 - censored) < 16:
            continue  # folds without an event cannot choose
        one = Patients(RankRLSCV(cv=KFold(5, shuffle=True, random_state=0)), patients, censored, signal).one
        yield Cell("C-index", f"estimate_ of RankRLSCV, {name}", one)


def cells_of_searches() -> Iterator[Cell]:
    rbf = RankRLSCV(kernel="rbf", gamma=0.1)
    for signal, units in itertools.product(("none", "weak", "strong"), (20, 60, 150)):
        several = [
            ("RankRLSCV", Search(RankRLSCV(), signal, units), 1.0),
            ("RankRLSCV, rbf, curved", Search(rbf, signal, units, curved=True), 0.5 if units < 150 else 0.25),
            ("RankRLSCV, one ranking", Search(RankRLSCV(), signal, 10 * units, "rows"), 0.5),
            ("RLSCV, one ranking", Search(RLSCV(scoring="concordance"), signal, 2 * units, "rows"), 0.5),
        ]
        for within in (0.0, 0.3, 0.9):
            grouped = Search(RankRLSCV(cv=5), signal, units, "groups", within=within)
            several.append((f"RankRLSCV, one ranking, {within:g} shared in groups", grouped, 0.5))
        for name, one, share in several:
            yield Cell("estimate_", f"{name}, signal {signal}, {one.units} {one.of}", one.one, share)
    for signal, (units, features) in itertools.product(("none", "medium"), ((20, 5), (60, 5), (60, 100))):
        one = Search(AutoRanker(random_state=0), signal, units, curved=True, features=features)
        name = f"AutoRanker, curved, signal {signal}, {units} queries, {features} features"
        yield Cell("estimate_", name, one.one, 0.1)
    for signal, answers in itertools.product((0.0, 1.0), (50, 200)):
        for search in (RankRLSCV(), BradleyTerryCV()):
            name = f"{type(search).__name__}.fit_pairs, signal {signal:g}, {answers} preferences"
            yield Cell("estimate_", name, searched_preferences(search, signal, answers), 0.5)
    for signal, hold_out in itertools.product((0.0, 1.0), ("entries", "rows")):
        name = f"KroneckerRLSCV, signal {signal:g}, {hold_out} held out"
        yield Cell("estimate_", name, searched_relation(signal, hold_out), 0.5)
    for signal, units in itertools.product(("none", "strong"), (20, 60)):
        one = Search(RankSVMCV(), signal, units).one
        yield Cell("estimate_", f"RankSVMCV, signal {signal}, {units} queries", one, 0.5)


@functools.cache
def every_cell() -> list[Cell]:
    """Made once, before processes divide."""
    return list(cells())


def draw(size: int, part: tuple[int, int]) -> list[Found]:
    """What a part of the data sets of a cell shows."""
    rng = np.random.default_rng(part)
    return [every_cell()[part[0]].one(rng) for _ in range(size)]


def covered(cell: Cell, found: list[Found]) -> dict:
    if len(found[0]) == 4:
        found = [(*row, *row[2:]) for row in found]
        return {"interval": cell.interval, "setting": cell.setting} | {
            key: value for key, value in coverage_of(found, "same").items() if not key.endswith("_same")
        }
    results = coverage_of(found, "student")
    if cell.interval == "estimate_":  # of the procedure: the mean of the models that it trains
        results["coverage_of_procedure"] = coverage_of(
            [(one[0], results["true_value"], *one[2:]) for one in found], "student"
        )["coverage"]
    return {"interval": cell.interval, "setting": cell.setting} | results


def main() -> None:
    warnings.simplefilter("ignore")
    options = arguments(__doc__, repeats=400, jobs=1, seconds=float("inf"), only="", to="")
    end = time.monotonic() + options.seconds
    size, every = 2 if options.quick else 10, every_cell()  # whose truths take a while
    asked = {
        number: max(2, round(cell.share * (2 if options.quick else options.repeats)))
        for number, cell in enumerate(every)
        if re.search(options.only, f"{cell.interval}: {cell.setting}")
    }
    parts = [(number, part) for number, most in asked.items() for part in range(-(-most // size))]
    parts.sort(key=lambda one: (one[1] + 1) / asked[one[0]])  # each cell has its share of the time
    found: dict[int, list[Found]] = {}
    work = functools.partial(draw, size)
    for (number, _), one in in_processes(work, parts, jobs=options.jobs, seconds=end - time.monotonic()):
        found.setdefault(number, []).extend(one)
    results = [covered(every[number], found[number]) for number in sorted(found)]
    for one in results:
        other = f"   Student's alone {one['coverage_student']:.3f}" if "coverage_student" in one else ""
        mark = "" if ALLOWED[0] <= one["coverage"] <= ALLOWED[1] else "  <"
        print(
            f"{one['interval']:<21} {one['setting']:<62} {one['coverage']:.3f} (width {one['mean_width']:.3f}, "
            f"{one['data_sets']} sets){other}{mark}"
        )
    for name in dict.fromkeys(one["interval"] for one in results):
        shares = np.array([one["coverage"] for one in results if one["interval"] == name])
        inside = np.mean((shares >= ALLOWED[0]) & (shares <= ALLOWED[1]))
        print(
            f"{name}: {shares.mean():.3f} on average, {shares.min():.3f} to {shares.max():.3f}; "
            f"{inside:.0%} in 0.92..0.99"
        )
    if not options.quick and (options.to or not options.only):
        write_results(options.to or "coverage", *results)


if __name__ == "__main__":
    main()
