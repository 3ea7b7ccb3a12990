"""Rankings: rows with targets, in queries or as one ranking; whole queries, or folds of rows, are held out."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse as sp
from sklearn.model_selection import KFold

from ... import RLS, RLSCV, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from ...comparisons import Groups, encode_queries
from ...comparisons.inputs import NOBODY_OUTLIVED, order_of, refuse_few_events
from ...errors import InputError, Remedy, shortened
from ...metrics import concordance, ndcg
from ...metrics.single_columns import best_feature_scores
from ...model_selection import (
    PerformanceEstimate,
    QueryKFold,
    compare_several_rankers,
    estimate_auc,
    estimate_concordance,
)
from ...model_selection._calibration import Calibration, SetChoice, as_odds, share_interval
from ...model_selection._folds import encode_groups, units_of
from ...model_selection._intervals import (
    TRAINED_TOGETHER,
    check_mean_interval,
    interval_over_queries,
    mean_interval,
)
from ...model_selection._performance import C_INDEX
from ...model_selection.conformal import StoredSets
from ...report.contents import (
    BEST_FEATURE,
    LONGEST_NAME,
    AlphaPath,
    Baseline,
    Choice,
    Estimate,
    Roc,
    SetSizes,
    Survival,
)
from ...report.displays import QueryRocDisplay, SurvivalDisplay
from ...shown_tables import clipped
from ...squared.routes import Workload, choose_route
from ...tables.data import RankingData
from .options import Learner, TrainingOptions
from .preparation import (
    BASELINE_FEATURES,
    SHUFFLED_ROWS,
    Chosen,
    Preparation,
    choose_learner,
    relative_to_query,
)

_FOLDS = 10
_REFIT_FOLDS = 5
# Queries are held out exactly where a factorisation within this time and size can do it, even if iterations are faster.
_FACTOR_SECONDS, _FACTOR_BYTES = 30.0, 4e9
# Leave-pair-out with its ten divisions into halves takes seconds up to here.
_LEAVE_PAIR_OUT_ROWS = 500
# Coverages of sets that are tried, the first that the number of queries allows.
_COVERAGES = (0.9, 0.8, 0.5)
_LEARNERS = {Learner.rankrls: RankRLS, Learner.rls: RLS, Learner.ranksvm: RankSVM}


@dataclass(frozen=True, eq=False)
class Division:
    """What is held out as one.

    Attributes
    ----------
    units : Groups
        Queries, or the folds of a global ranking.
    cv : what is passed to the searches
    unit : "query" or "fold"
    method : str
        The cross-validation, in words.
    exact : bool
        Whether held-out predictions come from algebra and not from refitting.
    one_part : str
        Where one part of a sample was held out from every member, and not each unit in its turn: this part, in words.
    """

    units: Groups
    cv: Any
    unit: str
    method: str
    exact: bool
    one_part: str = ""

    @property
    def labels(self) -> np.ndarray:
        """A name for each unit."""
        if self.unit == "query":
            assert self.units.labels is not None
            return np.asarray(self.units.labels)
        return np.array([f"fold {k + 1}" for k in range(self.units.n_groups)])

    @property
    def plural(self) -> str:
        return "queries" if self.unit == "query" else "folds"

    @property
    def sentence(self) -> str:
        """What ordered the held-out queries, as the beginning of a sentence."""
        if self.one_part:
            return f"{self.one_part} was held out and ordered by members that were trained without it ({self.method})"
        method = "leave-query-out, identical to refitting" if self.exact else self.method
        return f"Every query was ordered by a model that was trained without it ({method})"


@dataclass(frozen=True, eq=False)
class HeldOutScores:
    """Held-out predictions at the chosen alpha, and how good those of every alpha are.

    Attributes
    ----------
    scores : ndarray of shape (m,)
    values : ndarray of shape (n_units,)
        Their concordance in each unit; NaN where it has no pair.
    by_alpha : ndarray of shape (n_alphas, n_units) or None
        The same for every alpha, where the search keeps it.
    """

    scores: np.ndarray
    values: np.ndarray
    by_alpha: np.ndarray | None = None

    @property
    def defined(self) -> np.ndarray:
        """The values of the units that have a pair."""
        return self.values[~np.isnan(self.values)]

    @property
    def errors(self) -> np.ndarray | None:
        """Standard error over units for each alpha."""
        if self.by_alpha is None or self.defined.size < 2:
            return None
        found = self.by_alpha[:, ~np.isnan(self.values)]
        return found.std(axis=1, ddof=1) / np.sqrt(found.shape[1])

    @property
    def mean_without_choice(self) -> float | None:
        """The mean with alpha chosen for each unit by the other units alone."""
        if self.by_alpha is None or self.by_alpha.shape[0] < 2 or self.defined.size < 2:
            return None
        found = self.by_alpha[:, ~np.isnan(self.values)]
        others = (found.sum(axis=1, keepdims=True) - found) / (found.shape[1] - 1)
        return float(found[others.argmax(axis=0), np.arange(found.shape[1])].mean())


class RankingProblem:
    """Learn to order the rows of a query, or all rows.

    Parameters
    ----------
    data : RankingData
        With targets.
    options : TrainingOptions
    """

    rows_leave = True
    division: Division

    def __init__(self, data: RankingData, options: TrainingOptions):
        assert data.y is not None
        self.data = data
        self.options, self.why_single = choose_learner(options, data)
        # y as learners and metrics take it; the order of its rows, the higher the better, as numbers.
        self.y: Any = data.known
        self.order = order_of(data.known)
        self.X, self.feature_names = data.X, data.feature_names
        self.steps: list[tuple[str, Any]] = [] if data.encoder is None else [("table", data.encoder)]
        self.ready: Choice | None = None
        if options.within_queries:
            relative, self.X = relative_to_query(data.X, data.qid)
            self.steps.append(("relative", relative))
            why = "as asked: mean 0 and variance 1 in each query"
            self.ready = Choice("features", "standardised within queries", why)
        self.title = f"Ranking model from {data.source}"
        # Rows that are never on both sides of a split, where there are groups.
        self.units = None if data.clusters is None else units_of(data.qid, data.clusters, len(data))
        # What to say about a table that was read in parts.
        self.note_on_parts = ""

    def check(self) -> list[str]:
        if self.data.weight is not None:
            check_weights(self.data)
        about_parts = [self.note_on_parts] if self.note_on_parts else []
        return check_ranking(self.data) + self._about_words() + about_parts

    def _about_words(self) -> list[str]:
        """Where columns of words took the place of the candidates, how to get these back."""
        encoder = self.data.encoder
        words = [] if encoder is None else [name for name, kind in encoder.kinds_.items() if kind == "words"]
        if not words or not self.why_single:
            return []
        option = ",".join(f"{name}=text" for name in words)
        return [
            f"A linear RankRLS was trained instead of the candidates of AutoRanker: `{words[0]}` as words makes "
            f"{self.X.shape[1]:,} features in all. --encode {option} keeps the candidates, with fewer features for the "
            "text."
        ]

    def hold_out(self, prepared: Preparation) -> str:
        """Whole queries one by one where algebra can do it, folds otherwise."""
        m, qid, seed = len(self.data), self.data.qid, self.options.seed
        exact = self.options.learner is not Learner.ranksvm and not self._needs_iterations(prepared)
        if qid is None:
            n_folds = min(_FOLDS if exact else _REFIT_FOLDS, m // 2)
            cv: Any = KFold(n_folds, shuffle=True, random_state=seed)
            if self.units is not None:
                n_folds = min(n_folds, self.units.n_groups)
                cv = QueryKFold(n_folds, shuffle=True, random_state=seed)
            codes = np.empty(m, dtype=np.int64)
            for fold, (_, test) in enumerate(cv.split(np.empty((m, 0)), groups=self.units)):
                codes[test] = fold
            what = "rows" if self.units is None else "whole groups"
            method = f"{n_folds} random folds of {what} (seed {seed}); rows are compared within a fold"
            self.division = Division(Groups(codes, n_folds), cv, "fold", method, exact)
        elif exact:
            units = encode_queries(qid, m)
            method = "exact leave-query-out" + ("" if self.units is None else " with the groups of the query")
            self.division = Division(units, "leave-query-out", "query", method, exact)
        else:
            units = encode_queries(qid, m)
            n_folds = min(_REFIT_FOLDS, units.n_groups)
            cv = QueryKFold(n_folds, shuffle=True, random_state=seed)
            method = f"{n_folds} random folds of whole queries (seed {seed}), refitted"
            self.division = Division(units, cv, "query", method, exact)
        return self.division.method

    def hold_out_folds(self, folds: np.ndarray, seen: np.ndarray, *, one_part: bool) -> None:
        """Settle the division by the folds that a search drew, some rows of which it has seen.

        Without queries the rows that were not seen form a fold of their own. With ``one_part`` the folds divide the
        fifth of a sample that the members were not trained on.
        """
        n_folds = int(folds.max()) + 1
        if self.data.qid is None:
            codes = np.where(seen, folds, n_folds)
            units, unit, what = Groups(codes, int(codes.max()) + 1), "fold", "rows"
            what = "rows" if self.units is None else "whole groups"
        else:
            units, unit, what = encode_queries(self.data.qid, folds.shape[0]), "query", "whole queries"
            what += "" if self.units is None else " and groups"
        if not one_part:
            method = f"{n_folds} random folds of {what}, all choices made without the held-out fold"
            self.division = Division(units, None, unit, method, False)
            return
        held = folds >= 0
        n_held = np.unique(units.codes[held]).size if unit == "query" else np.count_nonzero(held)
        part = f"A fifth of the sample's {'queries' if unit == 'query' else 'rows'} ({n_held:,})"
        method = f"the weights of the members for each of {n_folds} folds of it chosen by the other folds"
        self.division = Division(units, None, unit, method, False, part)

    # ------------------------------------------------------------------------------------------ the search

    def choose_alpha(self, prepared: Preparation) -> Chosen:
        learner, options = self.options.learner, self.options
        model, predictions, best = self._search(
            learner, prepared.X, prepared.kernel, options.alphas, verbose=int(options.verbose)
        )
        by_alpha = np.stack([self.by_unit(scores) for scores in predictions])
        held_out = HeldOutScores(predictions[best], by_alpha[best], by_alpha)
        path = AlphaPath(model.alphas_, model.cv_scores_, model.alpha_, held_out.errors)
        return Chosen(model, path, held_out)

    def _search(
        self, learner: Learner, X: Any, kernel: dict[str, Any], alphas: Any, verbose: int = 0
    ) -> tuple[Any, np.ndarray, int]:
        """A fitted search, its held-out predictions for every alpha, and the row of the chosen one."""
        kind = {Learner.ranksvm: RankSVMCV, Learner.rankrls: RankRLSCV, Learner.rls: RLSCV}[learner]
        options = {
            "cv": self.division.cv,
            "scoring": "concordance",
            "keep_predictions": True,
            "verbose": verbose,
        }
        weights = {} if self.data.weight is None else {"sample_weight": self.data.weight}
        labels = {"qid": self.data.qid, "groups": self.units, **weights}
        model: Any = kind(alphas, **options, **kernel).fit(X, self.y, **labels)
        predictions = model.__dict__.pop("cv_predictions_")
        model.set_params(keep_predictions=False, verbose=0, cv=self._cv_to_keep)
        return model, predictions, int(np.flatnonzero(model.alphas_ == model.alpha_)[0])

    @property
    def _cv_to_keep(self) -> Any:
        """What the saved model says of its folds: scikit-learn's splitters are not part of a model file."""
        return self.division.cv if self.division.unit == "query" else None

    def by_unit(self, scores: np.ndarray) -> np.ndarray:
        """Concordance in each query or fold; NaN where there is no pair."""
        return concordance(self.y, scores, self.division.units, per_query=True).values

    @property
    def measure(self) -> str:
        """What the share of pairs in the right order is called."""
        if self.data.events is not None:
            return C_INDEX
        return "AUC" if self.division.unit == "fold" and self.has_two_classes else "concordance"

    @property
    def has_two_classes(self) -> bool:
        return self.data.events is None and np.unique(self.order).size == 2

    # ---------------------------------------------------------------------------------------- the estimate

    def estimate(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        if self.division.unit == "query":
            fitted = np.asarray(chosen.learner.predict(prepared.X))
            return self.estimate_over_queries(chosen.held_out, fitted), self.roc_over_units(chosen.held_out)
        return self._estimate_of_one_ranking(prepared, chosen)

    def sets(self, chosen: Chosen) -> SetSizes | None:
        return self.sets_of(chosen.held_out.scores)

    def sets_of(self, scores: np.ndarray) -> SetSizes | None:
        """Of held-out scores; NaN for rows without one."""
        if self.division.unit != "query" or self.data.events is not None:
            return None
        return set_sizes(
            scores, self.y, self.division.units, with_scale=self.division.exact, together=self.units
        )

    def estimate_over_queries(self, held_out: HeldOutScores, fitted: np.ndarray) -> Estimate:
        """The mean over queries, with an interval; from the predictions of the model for its training rows as well."""
        values, queries = held_out.defined, self.division.units
        clusters, independent = self._clusters_of(~np.isnan(held_out.values)), f"{values.size} queries"
        counted = independent if clusters is None else f"{independent} of {self.counted_groups}"
        if clusters is not None:
            independent = f"{clusters.n_groups} groups of queries"
        interval = interval_over_queries(
            held_out.values, self.order, held_out.scores, fitted, queries, clusters=clusters,
            events=self.data.events,
        )[1]  # fmt: skip
        return Estimate(
            self.measure,
            float(values.mean()),
            interval,
            f"{self.division.sentence}; the value is the mean over {counted}.",
            f"Student's t over the {independent}, {TRAINED_TOGETHER}",
            held_out.mean_without_choice,
            _checks_of_interval(values, self.options.seed) if values.size >= 4 and clusters is None else (),
        )

    def _clusters_of(self, counted: np.ndarray) -> Groups | None:
        """The units of the queries that count; None without groups."""
        if self.units is None:
            return None
        queries = self.division.units
        codes = self.units.codes[queries.order[queries.starts[:-1]]][counted]
        return encode_queries(codes, codes.shape[0])

    @property
    def counted_groups(self) -> str:
        """How many groups there are, and what they are: "60 groups (patient)"."""
        found = encode_groups(self.data.clusters, len(self.data)).n_groups
        return f"{found:,} groups" + (f" ({self.data.cluster})" if self.data.cluster else "")

    def _estimate_of_one_ranking(self, prepared: Preparation, chosen: Chosen) -> tuple[Estimate, Roc | None]:
        found = self._performance(self.options.learner, prepared.X, prepared.kernel, chosen.path.chosen)
        two_classes = found.measure == "AUC"
        roc = None
        if found.roc is not None:
            text = (
                "Rows are ranked by the pairs that they win, each pair ordered by a model that was trained "
                "without its two rows."
            )
            roc = Roc(found.roc.fpr, found.roc.tpr, found.value, text)
        elif two_classes:
            roc = self.roc_over_units(chosen.held_out)
        sentence = f"How a new pair of rows would be ordered: {found.method}, {found.compared}."
        if self.units is not None:
            sentence += (
                f" {self.counted_groups}, {len(self.data):,} rows: no group is on both sides of a split."
            )
        self._estimated = found.value
        return Estimate(self.measure, found.value, found.interval, sentence, found.interval_method), roc

    def _performance(
        self, learner: Learner, X: Any, kernel: dict[str, Any], alpha: float
    ) -> PerformanceEstimate:
        """Of one ranking: leave-pair-out where there are few rows, folds beyond."""
        y = self.y
        counts = np.unique(self.order, return_counts=True)[1]
        two_classes = self.has_two_classes and counts.min() >= 4
        small = learner is not Learner.ranksvm and y.size <= _LEAVE_PAIR_OUT_ROWS
        options: dict[str, Any] = {"random_state": self.options.seed, "groups": self.units}
        if not small:
            options["method"] = "averaged"
            most = [int(counts.min())] if two_classes else []
            most += [] if self.units is None else [self.units.n_groups]
            options["n_splits"] = min(_FOLDS, y.size // 2, *most)
        estimator = _LEARNERS[learner](alpha, **kernel)
        return (estimate_auc if two_classes else estimate_concordance)(estimator, X, y, **options)

    def roc_over_units(self, held_out: HeldOutScores) -> Roc | None:
        """The mean curve over units, where there are two classes."""
        if not self.has_two_classes:
            return None
        display = QueryRocDisplay.of_predictions(self.y, held_out.scores, self.division.units.codes)
        units = self.division.plural
        text = (
            f"The curve is the mean over the {display.n_queries} {units} that have rows of both classes, at "
            f"each false positive rate: scores of different {units} come from different models and are not "
            "mixed. The area under it is the mean of their areas."
        )
        return Roc(display.fpr, display.tpr, display.auc, text, display.n_queries)

    def _needs_iterations(self, prepared: Preparation) -> bool:
        """Whether the problem is too large for a factorisation, so that every fold is refitted."""
        if prepared.kernel["kernel"] != "linear":
            return False
        purpose, n_folds = ("folds", _FOLDS) if self.data.qid is None else ("queries", self.data.n_queries)
        workload = Workload.of(prepared.X, purpose, n_alphas=31, n_folds=n_folds)
        found = choose_route(workload)
        factorised = [route for route in found.others if route.exact and route.n_bytes < _FACTOR_BYTES]
        return found.chosen.solver == "cg" and all(route.seconds > _FACTOR_SECONDS for route in factorised)

    # --------------------------------------------------------------------------------------- the baselines

    def baselines(self, name: str, prepared: Preparation, chosen: Chosen) -> tuple[list[Baseline], str]:
        """A linear model, regression (or ranking), and the best single feature, held out as the model is."""
        scores = {name: chosen.held_out.scores}
        others: dict[str, Any] = {}
        units, notes = self.division.units, []
        if self._needs_iterations(prepared):
            notes.append(
                "Other learners were left out: these data are too large to hold out without refitting."
            )
        else:
            others = self._other_learners(prepared)
            scores |= {one: held_out for one, (_, _, held_out) in others.items()}
        if self.units is not None and self.division.unit == "query":
            notes.append("The best single feature was left out: queries of a group would choose it together.")
        elif len(self.feature_names) <= BASELINE_FEATURES:
            scores[BEST_FEATURE] = best_feature_scores(self.X, self.y, units)
        else:
            notes.append(f"The best single feature was left out: there are more than {BASELINE_FEATURES:,}.")
        if len(scores) > 1:
            notes.insert(0, self._explain_baselines())
        values = {one: concordance(self.y, found, units) for one, found in scores.items()}
        if self.division.unit == "fold":  # one figure for one model: that of the estimate
            values[name] = self._estimated
            values |= {
                one: self._performance(learner, X, kernel, model.alpha_).value
                for one, ((learner, X, kernel), model, _) in others.items()
            }
        rows = {one: Baseline(one, value, is_model=one == name) for one, value in values.items()}
        if self.division.unit == "query" and chosen.held_out.defined.size >= 2 and len(scores) > 1:
            table = compare_several_rankers(
                self.y, scores, self.data.qid, groups=self.data.clusters, baseline=name
            )
            for found, p in zip(table.comparisons, table.corrected):
                other = found.names[0]
                counts = (found.n_losses, found.n_wins, found.n_ties)  # seen from the learned model
                rows[other] = Baseline(other, values[other], *counts, float(p))
        return list(rows.values()), " ".join(notes)

    def _other_learners(self, prepared: Preparation) -> dict[str, Any]:
        """What was asked, the fitted search and its held-out scores, by name."""
        same = {
            Learner.rls: (Learner.rankrls, "RankRLS, same kernel"),
        }.get(self.options.learner, (Learner.rls, "RLS, same kernel (regression)"))
        others = {} if self.data.events is not None else {same[1]: (same[0], prepared.X, prepared.kernel)}
        if not prepared.is_linear:
            others["RankRLS, linear kernel"] = (Learner.rankrls, prepared.scaled, {"kernel": "linear"})
        found = {}
        with warnings.catch_warnings():
            # The edge of a baseline's grid of alphas does not concern the user.
            warnings.simplefilter("ignore", UserWarning)
            for name, one in others.items():
                model, predictions, best = self._search(*one, "auto")
                found[name] = (one, model, predictions[best])
        return found

    def _explain_baselines(self) -> str:
        units = self.division.plural
        text = (
            f"All are measured on the same held-out {units}. Each learner has its own best alpha; the single "
            f"feature and its direction are chosen by the other {units}."
        )
        if self.division.unit == "query":
            return (
                text
                + " p: Wilcoxon's signed ranks over queries against the learned model, corrected by Holm's method."
            )
        return (
            "The learners are estimated as this model is, each with its own best alpha; the single feature and its "
            "direction are chosen for each fold by the others. Pairs of one ranking are not independent trials: there "
            "is no test."
        )

    # ------------------------------------------------------------------------------------------ the report

    def _ndcg(self, scores: np.ndarray) -> tuple[float, float, float] | None:
        """Held-out NDCG@10 with its interval over queries; None where it is not defined."""
        if self.division.unit != "query" or self.data.events is not None or self.y.min() < 0:
            return None
        values = ndcg(self.y, scores, self.division.units, k=10, per_query=True).values
        values = values[~np.isnan(values)]
        if values.size < 2:
            return None
        return (float(values.mean()), *mean_interval(values)[1])

    def comparisons(self) -> dict[str, Any]:
        labels = {"qid": self.data.qid, "groups": self.data.clusters}
        return {"y": self.y, "max_rows": SHUFFLED_ROWS, **labels}

    def describe(self, chosen: Chosen) -> dict[str, Any]:
        counts = {"rows": len(self.data)}
        if self.data.qid is not None:
            counts["queries"] = self.data.n_queries
        if self.data.clusters is not None:
            counts["groups"] = encode_groups(self.data.clusters, len(self.data)).n_groups
        counts["features"] = self.X.shape[1]
        facts = self.data.facts()
        return {
            "summary": self.data.in_brief() + ("" if self.units is None else f", {self.counted_groups}"),
            "counts": counts,
            "data": {
                **{name: facts[name] for name in ("rows", "queries", "features")},
                "names": _listed(self.feature_names),
                "targets": facts["targets"],
            },
            "unit": self.division.unit,
            "survival": None if self.data.events is None else self._survival(chosen.held_out),
            "ndcg": self._ndcg(chosen.held_out.scores),
            "labels": self.division.labels,
            "values": chosen.held_out.values,
            "sizes": self.division.units.counts,
        }

    def _survival(self, held_out: HeldOutScores) -> Survival | None:
        """The thirds of each held-out unit by its held-out scores."""
        codes = self.division.units.codes
        if not held_out.defined.size:
            return None
        rows = np.flatnonzero(~np.isnan(held_out.values)[codes])
        found = SurvivalDisplay.of_predictions(self.y[rows], held_out.scores[rows], codes[rows])
        units = "stratum" if self.division.unit == "query" else "held-out fold"
        text = (
            f"Each {units} is divided into thirds by predictions of models that were trained without it. Whether they "
            "differ by more than chance, the interval of the C-index says: a log-rank test of these thirds would find "
            "something too often, since the models share training rows. Calibration is left out: a ranking says who "
            "lives longer, and predicts no probabilities."
        )
        return Survival(
            found.names, found.counts, found.events, found.medians, found.times, found.survival, text
        )  # fmt: skip


def _listed(names: list[str]) -> str:
    if names[0].isdigit():
        return f"numbered 1 to {len(names):,}"
    return shortened([clipped(one, LONGEST_NAME) for one in names])


def _checks_of_interval(values: np.ndarray, seed: int) -> tuple[Choice, ...]:
    found = check_mean_interval(values, random_state=seed)
    return (
        Choice(
            "bootstrap over queries",
            "{:.4f} to {:.4f}".format(*found.bootstrap),
            f"{found.n_draws:,} resamples of the queries, without assuming a normal distribution; its width "
            f"is {found.width_ratio:.2f} times that of Student's interval (1: they agree)",
        ),
        Choice(
            "halves of the queries",
            f"{100 * found.coverage:.1f} % covered",
            f"{found.n_draws:,} random divisions: how often the means of two halves differ by no more than "
            "their 95 % interval allows (95 % is right)",
        ),
    )


def check_ranking(data: RankingData) -> list[str]:
    """Refuse data that nothing can be learned from; return notes about the rest."""
    y, notes = data.y, list[str]()
    assert y is not None
    if len(data) < 4:
        raise InputError(
            f"{data.source}: {len(data)} rows are too few to learn from and hold out: expected 4 or more"
        )
    if data.events is not None:
        try:
            refuse_few_events(data.events)
        except ValueError as error:
            raise ValueError(f"{data.source}: {error}") from error
    elif (y == y[0]).all():
        digits = " in the 16 digits that are read" if abs(y[0]) >= 2.0**53 else ""
        advice = ". If they differ beyond these, subtract what they have in common" if digits else ""
        raise InputError(
            f"{data.source}: all targets are {y[0]:g}{digits}: there is no order to learn{advice}"
        )
    if data.qid is not None and data.n_queries == 1:
        raise InputError(
            f"{data.source}: all rows belong to one query ({data.qid[0]}), and whole queries are held out to "
            "choose alpha",
            Remedy("query", None, "to learn one ranking of all rows"),
            Remedy("query", purpose="and another column"),
        )
    groups = data.groups
    tied = np.isnan(concordance(data.known, np.zeros(len(data)), groups, per_query=True).values)
    if tied.all() and data.events is not None:
        raise ValueError(f"{data.source}: {NOBODY_OUTLIVED}")
    if tied.all():
        alone = bool((groups.counts == 1).all())
        what = "every query has one row" if alone else "the targets of every query are tied"
        raise InputError(
            f"{data.source}: {what}: there is no pair to learn from",
            Remedy("query", None, "to learn one ranking of all rows"),
            Remedy("query", purpose="with a column whose rows are compared")
            if alone
            else Remedy("target", purpose="with another column"),
        )
    if tied.any():
        notes.append(
            f"{int(tied.sum())} of {groups.n_groups} queries without a pair to order: "
            + (
                "all their targets are tied."
                if data.events is None
                else "nobody is known to have outlived another."
            )
        )
    return notes + _check_features(data, groups)


def check_weights(data: RankingData) -> None:
    """Refuse weights that the estimate of quality would ignore."""
    if data.qid is None:
        raise InputError(
            f"{data.source}: weights of rows are for rows in queries: the estimate of one ranking of all rows would "
            "ignore them",
            Remedy("query", purpose="with the column of the queries"),
        )


def _check_features(data: RankingData, groups: Groups) -> list[str]:
    X = data.X
    if sp.issparse(X):
        varies = np.asarray(X.max(axis=0).toarray() != X.min(axis=0).toarray()).ravel()
        within = varies
    else:
        if not np.isfinite(X).all():
            raise InputError(f"{data.source}: a feature is NaN or infinite: expected finite numbers")
        varies = np.ptp(X, axis=0) > 0
        within = np.asarray((_spread(X, groups) > 0).any(axis=0))
    if not varies.any():
        raise InputError(f"{data.source}: every feature is constant: there is nothing to order the rows by")
    if not within.any():
        raise InputError(
            f"{data.source}: every feature is constant within the queries: it cannot order their rows",
            Remedy("query", purpose="and another column"),
            Remedy("features", purpose="and other columns"),
        )
    notes = []
    hashed = _hashed(data)  # most buckets of a few words are empty
    constant = [name for name, one in zip(data.feature_names, varies) if not one and name not in hashed]
    if constant:
        notes.append(f"{_features_are(constant)} constant, and without influence.")
    pairs = zip(data.feature_names, within, varies)
    same = [name for name, one, other in pairs if other and not one and name not in hashed]
    if same:
        notes.append(f"{_features_are(same)} constant within every query, which cannot order its rows alone.")
    return notes


def _hashed(data: RankingData) -> set[str]:
    """Features that are buckets of hashed words."""
    if data.encoder is None:
        return set()
    kinds = data.encoder.kinds_
    return {
        name
        for column, encoder in data.encoder.encoders_.items()
        if kinds[column] in ("text", "words")
        for name in encoder.names(column)
    }


def _features_are(names: list[str]) -> str:
    return f"Feature {names[0]} is" if len(names) == 1 else f"Features {shortened(names, 5)} are"


def _spread(values: np.ndarray, groups: Groups) -> np.ndarray:
    """Largest minus smallest value of each column in each group, shape (n_groups, n)."""
    ordered, starts = values[groups.order], groups.starts[:-1]
    return np.maximum.reduceat(ordered, starts) - np.minimum.reduceat(ordered, starts)


def set_sizes(
    scores: np.ndarray, y: np.ndarray, queries: Groups, *, with_scale: bool, together: Groups | None = None
) -> SetSizes | None:
    """Sets that hold the best item; None where too few queries have one.

    Parameters
    ----------
    scores : ndarray of shape (m,)
        Of held-out rows; NaN for rows that were not held out.
    y : ndarray of shape (m,)
    queries : Groups
    with_scale : bool
        Whether held-out scores are on the scale of the model.
    together : Groups or None
        Rows of queries by which the coverage is measured together.
    """
    known = np.isfinite(scores)
    choice = SetChoice(Calibration(scores[known], y[known], queries.codes[known]), "best", 1)
    possible = [one for one in _COVERAGES if choice.n_counted >= 1 / (1 - one) - 1e-9]
    if not possible:
        return None
    coverage = possible[0]
    kind = choice.choose(coverage)
    size = float(choice.sizes(choice.cutoff(coverage, kind)).mean())
    items = float(known.sum()) / choice.queries.n_groups
    units = None
    if together is not None:
        units = together.codes[known][choice.queries.order[choice.queries.starts[:-1]]]
    covered = choice.covered(coverage, units)
    sentence = (
        f"To have the best item among those shown for {as_odds(coverage)} new queries, show {round(size, 1):g} of "
        f"{round(items, 1):g} items on average."
    )
    stored = StoredSets.of_choice(choice, kind, scores[known], with_scale=with_scale).to_dict()
    interval = share_interval(int(covered.sum()), covered.shape[0])
    curve = choice.sizes_by_coverage(kind)
    return SetSizes(coverage, size, items, float(covered.mean()), interval, *curve, sentence, stored)
