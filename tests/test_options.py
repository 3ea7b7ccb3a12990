"""Every option with every other: equal to plain refits, or refused; see `contracts.options`."""

from __future__ import annotations

import inspect
import re

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import Pipeline

from contracts import options
from oracles import naive_hold_out
from preflearn import RLS, RLSCV, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from preflearn.model_selection import HeldOut, cross_val_predict

pytest.importorskip("pandas")
pytest.importorskip("polars")

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


SEARCHES = {"RLS": RLSCV, "RankRLS": RankRLSCV, "RankSVM": RankSVMCV}
SEARCHES |= {f"{name} of times": search for name, search in SEARCHES.items()}


def _case_id(name: str, chosen: dict) -> str:
    return " ".join([name, *(str(value) for value in chosen.values())]).replace(" ", "-")


WORKING = [(name, chosen) for name in options.FAMILIES for chosen in options.combinations(name)]
REFUSED = [(name, *refusal) for name in options.FAMILIES for refusal in options.refusals(name)]


def hold_out(case: options.Combination, chosen: dict) -> tuple[np.ndarray, list[float]]:
    """Held-out predictions as a user asks for them, shape (alphas, m, ...), and the alphas."""
    alphas = [chosen["alpha"], 30 * chosen["alpha"]]
    if chosen["alphas"].startswith("search"):
        model = search(case, chosen, alphas).fit(case.X, case.y, **case.labels)
        if chosen["alphas"] == "search per output":
            check_each_output(case, chosen, model)
        return model.cv_predictions_, alphas
    if chosen["alphas"] == "two":
        return HeldOut(case.estimator, case.X, case.y, **case.labels).predict(case.cv, alphas), alphas
    values = cross_val_predict(case.estimator, case.X, case.y, cv=case.cv, **case.labels)
    return values[None], alphas[:1]


def search(case: options.Combination, chosen: dict, alphas: list[float]):
    parameters = {name: value for name, value in case.estimator.get_params().items() if name != "alpha"}
    if chosen["alphas"] == "search per output":
        parameters["alpha_per_output"] = True
    return SEARCHES[chosen["learner"]](alphas, cv=case.cv, keep_predictions=True, **parameters)


def check_each_output(case: options.Combination, chosen: dict, model) -> None:
    """The model at the chosen alphas is that of each output trained at its own."""
    labels = {name: value for name, value in case.labels.items() if name != "groups"}
    if chosen["learner"] == "RLS":
        labels.pop("qid", None)
    columns = case.y.reshape(len(case.y), -1).T
    assert model.alpha_.shape == (len(columns),) and model.cv_scores_.shape == (2, len(columns))
    found = model.predict(case.X).reshape(len(case.y), -1)
    for y, alpha, scores, f in zip(columns, model.alpha_, model.cv_scores_.T, found.T, strict=True):
        assert scores[list(model.alphas_).index(alpha)] >= np.nanmax(scores) - 1e-12
        expected = clone(case.estimator).set_params(alpha=alpha).fit(case.X, y, **labels).predict(case.X)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(f, expected, rtol=0, atol=tolerance(chosen) * max(scale, 1e-12))


def refit(case: options.Combination, alpha: float) -> np.ndarray:
    """The same by a model trained without each fold."""
    model = clone(case.estimator)
    if "alpha" in model.get_params():
        model.set_params(alpha=alpha)
    compares_queries = isinstance(model, Pipeline) or "qid" in inspect.signature(model.fit).parameters
    labels = {name: value for name, value in case.labels.items() if name != "groups"}
    if not compares_queries:
        labels.pop("qid", None)
    if isinstance(model, (RLS, RankRLS, RankSVM)) and model.n_basis is not None:  # drawn once, from all rows
        drawn = clone(model).fit(case.plain, case.y, **labels).basis_indices_
        model.set_params(basis=drawn, n_basis=None)
    return naive_hold_out(model, case.plain, case.y, case.folds, leaving=case.leaving, **labels)


def tolerance(chosen: dict) -> float:
    """Relative to the largest prediction: what iterations and single precision leave."""
    if chosen["X"] == "float32" or chosen.get("solver") == "cg":
        return 5e-4
    return 1e-4 if "loss" in chosen else 2e-5


@pytest.mark.parametrize(("name", "chosen"), WORKING, ids=[_case_id(*case) for case in WORKING])
def test_held_out_equals_refitted(name, chosen):
    case = options.build(name, chosen)
    try:
        held_out, alphas = hold_out(case, chosen)
    except ValueError as error:  # only where a rule says that it may be refused
        assert any(re.search(options.RULES[rule].says, str(error)) for rule in options.rules_met(chosen))
        return
    for alpha, found in zip(alphas, held_out, strict=True):
        expected = refit(case, alpha)
        scale = max(np.nanmax(np.abs(expected)), 1e-12)
        np.testing.assert_allclose(found / scale, expected / scale, rtol=0, atol=tolerance(chosen))


@pytest.mark.parametrize(("name", "rule", "chosen"), REFUSED, ids=[f"{n} {rule}" for n, rule, _ in REFUSED])
def test_what_is_refused_names_both_options(name, rule, chosen):
    case = options.build(name, chosen)
    with pytest.raises((ValueError, TypeError), match=options.RULES[rule].says):
        hold_out(case, chosen)


def test_every_rule_is_met():
    assert {rule for _, rule, _ in REFUSED} == {name for name, rule in options.RULES.items() if rule.always}
