"""The work of `preflearn train`: choose alpha by cross-validation, keep what was held out, compare with baselines."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from preflearn.cli.recipe import Learner, Recipe
from preflearn.comparisons import Groups, encode_queries
from preflearn.metrics import concordance
from preflearn.report.contents import AlphaPath, Baseline, Choice, Estimate, Influence, Roc

if TYPE_CHECKING:
    from preflearn.io import PreferenceData, RankingData

_FOLDS = 10
_REFIT_FOLDS = 5
# Leave-pair-out with its ten divisions into halves takes seconds up to here.
_LEAVE_PAIR_OUT_ROWS = 500
# Permuting a feature costs a prediction of the sampled rows.
_PERMUTED_ROWS = 1000
_PERMUTED_FEATURES = 100
_PERMUTATIONS = 3
_BASELINE_FEATURES = 2000
_PREFERENCE_ALPHAS = 2.0 ** np.arange(-15, 16, 2)


@dataclass(frozen=True)
class Task:
    """Rows to learn from, and what is held out as one.

    Attributes
    ----------
    y : ndarray of shape (m,)
    qid : ndarray of shape (m,) or None
    units : Groups
        Queries, or the folds of a global ranking.
    cv : what is passed to the searches
    unit : "query" or "fold"
    how : str
        The cross-validation, in words.
    seed : int
    """

    y: np.ndarray
    qid: np.ndarray | None
    units: Groups
    cv: Any
    unit: str
    how: str
    seed: int

    @property
    def labels(self) -> np.ndarray:
        if self.unit == "query":
            assert self.units.labels is not None
            return np.asarray(self.units.labels)
        return np.array([f"fold {k + 1}" for k in range(self.units.n_groups)])


@dataclass(frozen=True)
class Learned:
    """A fitted search with what it predicted for held-out rows.

    Attributes
    ----------
    search : fitted estimator
    scores : ndarray of shape (m,)
        Held-out predictions at the chosen alpha.
    values : ndarray of shape (n_units,)
        Their concordance in each unit; NaN where it has no pair.
    by_alpha : ndarray of shape (n_alphas, n_units) or None
    """

    search: Any
    scores: np.ndarray
    values: np.ndarray
    by_alpha: np.ndarray | None

    @property
    def path(self) -> AlphaPath:
        errors = None
        if self.by_alpha is not None:
            found = self.by_alpha[:, ~np.isnan(self.values)]
            if found.shape[1] > 1:
                errors = found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])
        return AlphaPath(self.search.alphas_, self.search.cv_scores_, self.search.alpha_, errors)

    @property
    def mean(self) -> float:
        return float(np.nanmean(self.values))

    @property
    def without_choice(self) -> float | None:
        """The mean with alpha chosen for each unit by the other units alone."""
        if self.by_alpha is None or self.by_alpha.shape[0] < 2:
            return None
        found = self.by_alpha[:, ~np.isnan(self.values)]
        if found.shape[1] < 2:
            return None
        others = (found.sum(axis=1, keepdims=True) - found) / (found.shape[1] - 1)
        return float(found[others.argmax(axis=0), np.arange(found.shape[1])].mean())


class _Recorder:
    """A measure for searches that keeps the held-out predictions that it is shown, one set for each alpha."""

    def __init__(self, units: Groups):
        self.units = units
        self.scores: list[np.ndarray] = []
        self.values: list[np.ndarray] = []

    def __call__(self, y: np.ndarray, scores: np.ndarray, within: Any) -> float:
        found = concordance(y, scores, self.units, per_query=True)
        self.scores.append(scores)
        self.values.append(found.values)
        return found.mean


# ------------------------------------------------------------------------------------------------ the data


def check_data(data: RankingData) -> list[str]:
    """Refuse data that nothing can be learned from; what is only worth knowing comes back as notes."""
    y, notes = data.y, []
    assert y is not None
    if len(data) < 4:
        raise ValueError(
            f"{data.source}: {len(data)} rows are too few to learn from and hold out: expected 4 or more."
        )
    if (y == y[0]).all():
        raise ValueError(f"{data.source}: all targets are {y[0]:g}: there is no order to learn.")
    if data.qid is not None and data.n_queries == 1:
        raise ValueError(
            f"{data.source}: all rows belong to one query ({data.qid[0]}), and whole queries are held out to choose "
            "alpha. "
            "Pass --no-query to learn one ranking of all rows, or --query and another column."
        )
    groups = data.groups
    tied = _spread(y[:, None], groups)[:, 0] == 0
    if tied.all():
        raise ValueError(
            f"{data.source}: the targets of every query are tied: there is no pair to learn from. Check --target and "
            "--query."
        )
    if tied.any():
        notes.append(
            f"{int(tied.sum())} of {groups.n_groups} queries without a pair to order: all their targets are tied."
        )
    return notes + _check_features(data, groups)


def _check_features(data: RankingData, groups: Groups) -> list[str]:
    from scipy import sparse as sp

    X = data.X
    if sp.issparse(X):
        varies = np.asarray(X.max(axis=0).toarray() != X.min(axis=0).toarray()).ravel()
        within = varies
    else:
        if not np.isfinite(X).all():
            raise ValueError(f"{data.source}: a feature is NaN or infinite: expected finite numbers.")
        varies = np.ptp(X, axis=0) > 0
        within = np.asarray((_spread(X, groups) > 0).any(axis=0))
    if not varies.any():
        raise ValueError(f"{data.source}: every feature is constant: there is nothing to order the rows by.")
    if not within.any():
        raise ValueError(
            f"{data.source}: every feature is constant within the queries: it cannot order their rows. Check "
            "--query and "
            "--features."
        )
    notes = []
    constant = [name for name, one in zip(data.feature_names, varies) if not one]
    if constant:
        notes.append(f"{_listed(constant)} constant, and without influence.")
    same = [name for name, one, other in zip(data.feature_names, within, varies) if other and not one]
    if same:
        notes.append(
            f"{_listed(same)} constant within every query: alone it cannot order the rows of a query."
        )
    return notes


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"Feature {shown} is" if len(names) == 1 else f"Features {shown} are"


def _spread(values: np.ndarray, groups: Groups) -> np.ndarray:
    """Largest minus smallest value of each column in each group, shape (n_groups, n)."""
    ordered, starts = values[groups.order], groups.starts[:-1]
    return np.maximum.reduceat(ordered, starts) - np.minimum.reduceat(ordered, starts)


# ---------------------------------------------------------------------------------------------- the search


def make_task(data: RankingData, recipe: Recipe, learner: Learner, seed: int) -> Task:
    """How the rows are held out: whole queries one by one where algebra can do it, folds otherwise."""
    from sklearn.model_selection import KFold

    from preflearn.model_selection import QueryKFold

    y, m = data.y, len(data)
    assert y is not None
    by_algebra = learner is not Learner.ranksvm and not _needs_iterations(recipe)
    if data.qid is None:
        n_folds = min(_FOLDS if by_algebra else _REFIT_FOLDS, m // 2)
        cv = KFold(n_folds, shuffle=True, random_state=seed)
        codes = np.empty(m, dtype=np.int64)
        for fold, (_, test) in enumerate(cv.split(np.empty((m, 0)))):
            codes[test] = fold
        how = f"{n_folds} folds of rows, dealt at random (seed {seed}); rows are compared inside a fold"
        return Task(y, None, Groups(codes, n_folds), cv, "fold", how, seed)
    groups = encode_queries(data.qid, m)
    if by_algebra:
        return Task(y, data.qid, groups, "leave-query-out", "query", "exact leave-query-out", seed)
    n_folds = min(_REFIT_FOLDS, groups.n_groups)
    cv = QueryKFold(n_folds, shuffle=True, random_state=seed)
    how = f"{n_folds} folds of whole queries, dealt at random (seed {seed}) and refitted"
    return Task(y, data.qid, groups, cv, "query", how, seed)


def _needs_iterations(recipe: Recipe) -> bool:
    """Whether the problem is too large for a factorisation, so that every fold is trained again."""
    from scipy import sparse as sp

    from preflearn.solvers.choice import choose_solver

    linear = recipe.kernel["kernel"] == "linear"
    m, n = recipe.X.shape
    return linear and (
        choose_solver(
            "auto", linear=True, reduced=False, sparse=sp.issparse(recipe.X), n_rows=m, n_features=n
        )
        == "cg"
    )


def search(
    learner: Learner, X: Any, kernel: dict[str, Any], alphas: Any, task: Task, verbose: int = 0
) -> Learned:
    """Choose alpha and fit; keep what was held out."""
    from preflearn import RLSCV, RankRLSCV

    if learner is Learner.ranksvm:
        return _search_ranksvm(X, kernel, alphas, task)
    recorder = _Recorder(task.units)
    kind = RankRLSCV if learner is Learner.rankrls else RLSCV
    model = kind(alphas, cv=task.cv, scoring=recorder, verbose=verbose, **kernel).fit(X, task.y, qid=task.qid)
    # The recorder measured the concordance; saying so leaves a model that can be saved.
    model.set_params(scoring="concordance", verbose=0, cv=_cv_to_keep(task))
    chosen = int(np.flatnonzero(model.alphas_ == model.alpha_)[0])
    return Learned(model, recorder.scores[chosen], recorder.values[chosen], np.stack(recorder.values))


def _cv_to_keep(task: Task) -> Any:
    """What the saved model says of its folds: scikit-learn's splitters are no part of a model file."""
    return task.cv if task.unit == "query" else None


def _search_ranksvm(X: Any, kernel: dict[str, Any], alphas: Any, task: Task) -> Learned:
    from preflearn import RankSVM, RankSVMCV
    from preflearn.model_selection import cross_val_predict

    model = RankSVMCV(alphas, cv=task.cv, **kernel).fit(X, task.y, qid=task.qid)
    model.set_params(cv=_cv_to_keep(task))
    scores = cross_val_predict(RankSVM(model.alpha_, **kernel), X, task.y, qid=task.qid, cv=task.cv)
    return Learned(model, scores, concordance(task.y, scores, task.units, per_query=True).values, None)


# -------------------------------------------------------------------------------------------- the estimate


def estimate(
    learner: Learner, X: Any, kernel: dict[str, Any], learned: Learned, task: Task
) -> tuple[Estimate, Roc | None]:
    """The held-out concordance with its interval, and the ROC curve of two classes."""
    if task.unit == "query":
        return _estimate_over_queries(learned, task), _roc_over_units(learned, task)
    return _estimate_global(learner, X, kernel, learned, task)


def _estimate_over_queries(learned: Learned, task: Task) -> Estimate:
    from preflearn.model_selection.intervals import mean_interval

    values = learned.values[~np.isnan(learned.values)]
    _, interval = mean_interval(values)
    exact = task.how == "exact leave-query-out"
    each = (
        "Every query was ordered by a model that was trained without it (leave-query-out, equal to training again)"
        if exact
        else f"Every query was ordered by a model that was trained without it ({task.how})"
    )
    return Estimate(
        "concordance",
        learned.mean,
        interval,
        f"{each}; the value is the mean over {values.size} queries.",
        f"Student's t over the {values.size} queries, taken as independent trials",
        learned.without_choice,
        _check_interval(values, interval, task.seed) if values.size >= 4 else (),
    )


def _check_interval(values: np.ndarray, interval: tuple[float, float], seed: int) -> tuple[Choice, ...]:
    """Two checks of Student's interval that need no normal distribution."""
    from scipy.stats import t as student

    random = np.random.default_rng(seed)
    n, n_draws = values.size, 2000
    means = values[random.integers(0, n, size=(n_draws, n))].mean(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    half = n // 2
    covered = 0
    for _ in range(n_draws):
        order = random.permutation(n)
        one, other = values[order[:half]], values[order[half:]]
        error = np.sqrt(one.var(ddof=1) / one.size + other.var(ddof=1) / other.size)
        covered += bool(abs(one.mean() - other.mean()) <= student.ppf(0.975, n - 2) * error)
    ratio = (high - low) / max(interval[1] - interval[0], 1e-12)
    return (
        Choice(
            "bootstrap over queries",
            f"{low:.4f} to {high:.4f}",
            f"{n_draws:,} resamples of the queries, no normal distribution supposed; its width is {ratio:.2f} times "
            "that of "
            "Student's interval (1 is agreement)",
        ),
        Choice(
            "halves of the queries",
            f"{100 * covered / n_draws:.1f} % covered",
            f"{n_draws:,} random divisions: how often the means of two halves differ by no more than their 95 % "
            "interval "
            "allows (95 % is right)",
        ),
    )


def _estimate_global(
    learner: Learner, X: Any, kernel: dict[str, Any], learned: Learned, task: Task
) -> tuple[Estimate, Roc | None]:
    from preflearn import RLS, RankRLS, RankSVM
    from preflearn.model_selection import estimate_auc, estimate_concordance

    kind = {Learner.rankrls: RankRLS, Learner.rls: RLS, Learner.ranksvm: RankSVM}[learner]
    counts = np.unique(task.y, return_counts=True)[1]
    two_classes = counts.size == 2 and counts.min() >= 4
    small = learner is not Learner.ranksvm and task.y.size <= _LEAVE_PAIR_OUT_ROWS
    options: dict[str, Any] = {"method": "leave-pair-out" if small else "averaged", "random_state": task.seed}
    if not small:
        options["n_splits"] = min(_FOLDS, task.y.size // 2, *([int(counts.min())] if two_classes else []))
    ask = estimate_auc if two_classes else estimate_concordance
    found = ask(kind(learned.search.alpha_, **kernel), X, task.y, **options)
    roc = None
    if found.roc is not None:
        text = (
            "Rows are ranked by the pairs that they win, each pair ordered by a model that was trained without its two "
            "rows."
        )
        roc = Roc(found.roc.fpr, found.roc.tpr, found.value, text)
    elif two_classes:
        roc = _roc_over_units(learned, task)
    measure = found.measure if found.measure == "AUC" else "concordance"
    return (
        Estimate(
            measure,
            found.value,
            found.interval,
            f"How a new pair of rows would be ordered: {found.method}, {found.compared}.",
            found.interval_method,
            None,
        ),
        roc,
    )


def _roc_over_units(learned: Learned, task: Task) -> Roc | None:
    from preflearn.report.displays import QueryRocDisplay

    if np.unique(task.y).shape[0] != 2:
        return None
    display = QueryRocDisplay.from_predictions(task.y, learned.scores, task.units.codes)
    what = "queries" if task.unit == "query" else "folds"
    text = (
        f"The curve is the mean over the {display.n_queries} {what} that have rows of both classes, at each false "
        "positive "
        f"rate: scores of different {what} come from different models and are not mixed. The area under it is the "
        "mean of "
        "their areas."
    )
    return Roc(display.fpr, display.tpr, display.auc, text, display.n_queries)


# ------------------------------------------------------------------------------------------ the baselines


def baselines(
    name: str,
    learner: Learner,
    recipe: Recipe,
    learned: Learned,
    task: Task,
    X: Any,
    feature_names: list[str],
) -> tuple[tuple[Baseline, ...], str]:
    """The learned model beside a linear one, regression (or ranking), and the best single feature."""
    from preflearn.model_selection import compare_several_rankers

    scores = {name: learned.scores}
    notes = []
    if not _needs_iterations(recipe):
        if not recipe.is_linear:
            linear = _baseline_scores(Learner.rankrls, recipe.scaled, {"kernel": "linear"}, task)
            scores["RankRLS, linear kernel"] = linear
        other, text = (
            (Learner.rankrls, "RankRLS, same kernel")
            if learner is Learner.rls
            else (Learner.rls, "RLS, same kernel (regression)")
        )
        scores[text] = _baseline_scores(other, recipe.X, recipe.kernel, task)
    else:
        notes.append(
            "Other learners were left out: these data are too large to hold out without training again."
        )
    if len(feature_names) <= _BASELINE_FEATURES:
        scores["best single feature"] = best_single_feature(X, task.y, task.units)
    else:
        notes.append(f"The best single feature was left out: there are more than {_BASELINE_FEATURES:,}.")
    values = {one: concordance(task.y, found, task.units) for one, found in scores.items()}
    notes.insert(0, _explain_baselines(task, len(scores) > 1))
    defined = int((~np.isnan(learned.values)).sum())
    if task.unit != "query" or defined < 2 or len(scores) < 2:
        rows = [Baseline(one, value, is_model=one == name) for one, value in values.items()]
    else:
        table = compare_several_rankers(task.y, scores, task.qid, baseline=name)
        by_name = {one.names[0]: (one, p) for one, p in zip(table.comparisons, table.corrected)}
        rows = [Baseline(name, values[name], is_model=True)]
        for one, (found, p) in by_name.items():
            rows.append(Baseline(one, values[one], found.n_worse, found.n_better, found.n_tied, float(p)))
    rows.append(Baseline("random order", 0.5))
    return tuple(sorted(rows, key=lambda row: -row.value)), " ".join(notes)


def _baseline_scores(learner: Learner, X: Any, kernel: dict[str, Any], task: Task) -> np.ndarray:
    with warnings.catch_warnings():
        # The edge of a baseline's grid of alphas is no concern of the user's.
        warnings.simplefilter("ignore", UserWarning)
        return search(learner, X, kernel, "auto", task).scores


def _explain_baselines(task: Task, any_other: bool) -> str:
    if not any_other:
        return ""
    units = "queries" if task.unit == "query" else "folds"
    text = (
        f"All are measured on the same held-out {units}. Each learner has its own best alpha; the single feature "
        "and its "
        f"direction are chosen by the other {units}."
    )
    if task.unit == "query":
        return (
            text
            + " p: Wilcoxon's signed ranks over queries against the learned model, corrected by Holm's method."
        )
    return text + (
        " These are the folds that alpha was chosen over, so that the model's value may differ a little from the "
        "estimate. Folds of one ranking are not independent trials: there is no test."
    )


def best_single_feature(X: Any, y: np.ndarray, units: Groups) -> np.ndarray:
    """Scores by the feature, up or down, that orders the *other* units best, in each unit."""
    from scipy import sparse as sp

    columns = X.tocsc() if sp.issparse(X) else X
    shares = []
    for k in range(X.shape[1]):
        column = columns[:, [k]].toarray()[:, 0] if sp.issparse(X) else columns[:, k]
        shares.append(concordance(y, column, units, per_query=True).values)
    up = np.nan_to_num(np.array(shares) - 0.5)  # (n, n_units); a unit without pairs says nothing
    total = np.abs(up.sum(axis=1, keepdims=True) - up)
    sign = np.where(up.sum(axis=1, keepdims=True) - up >= 0, 1.0, -1.0)
    best = total.argmax(axis=0)
    scores = np.empty(y.shape[0])
    for unit in range(units.n_groups):
        rows, k = units.rows(unit), best[unit]
        column = columns[:, [k]].toarray()[:, 0] if sp.issparse(X) else columns[:, k]
        scores[rows] = sign[k, unit] * column[rows]
    return scores


# ------------------------------------------------------------------------------------------- the influence


def influence(
    model: Any, recipe: Recipe, learned_coef: Any, X: Any, task: Task | None, names: list[str]
) -> tuple[Influence | None, str]:
    """Coefficients of a linear model; for other kernels what shuffling a feature costs."""
    if recipe.is_linear and learned_coef is not None:
        text = (
            "The score is a weighted sum of the scaled features: a bar to the right means that higher values rank "
            "higher. Bars "
            "can be compared with each other, since every feature has variance 1; features that go together share "
            "their "
            "influence."
        )
        return Influence(
            list(names), np.asarray(learned_coef), "coefficient of the scaled feature", text
        ), _left_out(names)
    if task is None:
        return None, "The kernel is not linear, so there are no coefficients to show."
    if len(names) > _PERMUTED_FEATURES:
        return None, (
            f"Left out: the kernel is not linear, and shuffling each of {len(names):,} features in turn would take "
            "long. "
            "--kernel linear shows coefficients."
        )
    values, errors, n_rows = _permute(model, X, task)
    text = (
        "The kernel is not linear, so there are no coefficients. A bar shows how much concordance falls when the "
        "values of "
        f"that feature are shuffled among the rows of a {task.unit if task.unit == 'query' else 'ranking'} (mean of "
        f"{_PERMUTATIONS} shuffles, line: standard deviation). It is measured on {n_rows:,} rows of the training "
        "data: it says what the "
        "model uses, not what is worth collecting. Features that stand in for each other both look small."
    )
    return Influence(list(names), values, "loss of concordance when shuffled", text, errors), _left_out(names)


def _left_out(names: list[str]) -> str:
    return "" if len(names) <= 15 else f"The 15 largest of {len(names):,} features are shown."


def _permute(model: Any, X: Any, task: Task) -> tuple[np.ndarray, np.ndarray, int]:
    random = np.random.default_rng(task.seed)
    groups = task.units if task.unit == "query" else Groups(np.zeros(task.y.size, dtype=np.int64), 1)
    rows = _sample(groups, random)
    X, y = X[rows], task.y[rows]
    owners = encode_queries(groups.codes[rows], rows.size)
    whole = concordance(y, model.predict(X), owners)
    losses = np.empty((X.shape[1], _PERMUTATIONS))
    for k in range(X.shape[1]):
        shuffled = X.copy()
        for repeat in range(_PERMUTATIONS):
            # Sorting by the group and a random number shuffles the rows inside the groups.
            place = np.lexsort((random.random(rows.size), owners.codes))
            shuffled[owners.order, k] = X[place, k]
            losses[k, repeat] = whole - concordance(y, model.predict(shuffled), owners)
    return losses.mean(axis=1), losses.std(axis=1, ddof=1), rows.size


def _sample(groups: Groups, random: np.random.Generator) -> np.ndarray:
    """Rows of as many groups as possible, up to the limit: the loss is a mean over groups, not over rows."""
    if groups.n_rows <= _PERMUTED_ROWS:
        return np.arange(groups.n_rows)
    chosen = random.permutation(groups.n_groups)[: _PERMUTED_ROWS // 2]
    most = _PERMUTED_ROWS // chosen.size
    picked = [groups.rows(group) for group in chosen]
    return np.sort(
        np.concatenate([random.choice(rows, min(most, rows.size), replace=False) for rows in picked])
    )


# ----------------------------------------------------------------------------------------- preferences


def learn_preferences(data: PreferenceData, recipe: Recipe, alphas: Any) -> tuple[Any, AlphaPath, Estimate]:
    """RankRLS from preferences, alpha by exact leave-preference-out."""
    from preflearn import RankRLS
    from preflearn.model_selection import leave_preference_out
    from preflearn.model_selection.intervals import wilson_interval

    if len(data) < 2:
        raise ValueError("One preference is too few to learn from and hold out: expected 2 or more.")
    grid = _PREFERENCE_ALPHAS if isinstance(alphas, str) else np.asarray(alphas, dtype=float)
    extra = {"magnitude": data.magnitude, "weight": data.weight}
    shares = []
    for alpha in grid:
        difference = leave_preference_out(RankRLS(alpha, **recipe.kernel), recipe.X, data.pairs, **extra)
        shares.append(float(np.mean(difference > 0) + 0.5 * np.mean(difference == 0)))
    scores = np.array(shares)
    chosen = float(grid[scores >= scores.max() - 1e-12].max())
    model = RankRLS(chosen, **recipe.kernel).fit_pairs(recipe.X, data.pairs, **extra)
    share, n = float(scores.max()), len(data)
    interval = wilson_interval(share, share * (1 - share) / n, n)
    held_out = (
        f"Every one of {n:,} preferences was predicted by a model that was trained without it "
        "(leave-preference-out, equal to "
        "training again); its items may occur in others."
    )
    method = (
        f"Wilson's interval of a share of {n:,}, taken as independent trials. Preferences that share items or "
        "judges are not "
        "independent, and the interval is then too narrow"
    )
    return model, AlphaPath(grid, scores, chosen), Estimate("concordance", share, interval, held_out, method)


def preference_baselines(
    name: str, data: PreferenceData, estimate: Estimate
) -> tuple[tuple[Baseline, ...], str]:
    """The learned model beside the best single feature."""
    from scipy import sparse as sp

    rows = [Baseline(name, estimate.value, is_model=True), Baseline("random order", 0.5)]
    note = ""
    if data.X.shape[1] <= _BASELINE_FEATURES:
        X = data.X.toarray() if sp.issparse(data.X) else data.X
        won = 0.5 * np.sign(
            X[data.pairs[:, 0]] - X[data.pairs[:, 1]]
        )  # (l, n): 1/2 right, -1/2 wrong, 0 tied
        others = won.sum(axis=0) - won
        best = np.abs(others).argmax(axis=1)
        each = np.arange(won.shape[0])
        sign = np.where(others[each, best] >= 0, 1.0, -1.0)
        rows.append(Baseline("best single feature", float(np.mean(0.5 + sign * won[each, best]))))
        note = "The single feature and its direction were chosen for each preference by the others."
    return tuple(sorted(rows, key=lambda row: -row.value)), note
