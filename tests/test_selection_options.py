"""Options of the functions of `model_selection` together: plain loops over refits, or a refusal that names them."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from contracts import selection_options as contract

pytest.importorskip("pandas")
pytest.importorskip("polars")

WORKING = [(name, chosen) for name in contract.FUNCTIONS for chosen in contract.working(name)]
REFUSED = [(name, *refusal) for name in contract.FUNCTIONS for refusal in contract.refused(name)]


def _id(case: tuple) -> str:
    return " ".join([case[0], *map(str, case[-1].values())])


def call(name: str, case: contract.Case) -> dict:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return contract.FUNCTIONS[name].by_user(case)


def tolerance(chosen: contract.Chosen) -> float:
    """Relative to the largest number: what iterations and single precision leave."""
    if chosen["X"] == "float32":
        return 5e-4
    return 1e-4 if chosen["learner"] == "RankSVM" else 1e-5


@pytest.mark.parametrize(("name", "chosen"), WORKING, ids=map(_id, WORKING))
def test_options_together_equal_plain_loops(name, chosen):
    case = contract.build(chosen)
    found, expected = call(name, case), contract.FUNCTIONS[name].by_loops(case)
    assert found.keys() == expected.keys()
    for key, values in expected.items():
        scale = max(np.nanmax(np.abs(values)), 1e-12)
        np.testing.assert_allclose(
            np.asarray(found[key]) / scale,
            np.asarray(values) / scale,
            rtol=0,
            atol=tolerance(chosen),
            err_msg=key,
        )


@pytest.mark.parametrize(("name", "rule", "chosen"), REFUSED, ids=[f"{n} {rule}" for n, rule, _ in REFUSED])
def test_what_is_refused_names_both_options(name, rule, chosen):
    with pytest.raises((ValueError, TypeError), match=contract.FUNCTIONS[name].rules[rule].says):
        call(name, contract.build(chosen))


def test_every_rule_is_met():
    rules = {(name, rule) for name, function in contract.FUNCTIONS.items() for rule in function.rules}
    assert {(name, rule) for name, rule, _ in REFUSED} == rules
