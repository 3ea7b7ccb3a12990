"""Every two values of two options of `rate` together: the slow, obvious way, or a refusal that names both."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from contracts import rate_options as contract
from contracts.pairwise import all_pairs
from preflearn import rate
from preflearn.ratings.held_out import HALF_LIVES, PRIOR_WIDTHS, alpha_of
from preflearn.ratings.tables import columns_of

POINTS = 400 / np.log(10)
COMBINATIONS = all_pairs(contract.OPTIONS)
ACCEPTED = contract.accepted()


def check(options):
    table, given, known = contract.rated(options)
    words = contract.refusal(options)
    if words:
        with pytest.raises(ValueError) as refused:
            rate(table, **given)
        message = str(refused.value).lower().replace("_", "-")
        assert all(word.replace("_", "-") in message for word in words), message
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = rate(table, **given)
    chosen = [alpha_of(width) for width in PRIOR_WIDTHS]
    assert found.alpha in (chosen if options["alpha"] == "auto" else [max(options["alpha"], 1e-10)])
    if options["half_life"] == "auto":
        assert found.half_life is None or found.half_life in HALF_LIVES
    truth = contract.expected(options, known, found)
    n = len(found.items)
    f = truth["theta"][:n]
    np.testing.assert_allclose(found.strengths.scores, f, atol=2e-6)
    np.testing.assert_allclose(found.strengths.coefficients, truth["theta"][n:], atol=2e-6)
    se, q = np.sqrt(np.diag(truth["covariance"])), norm.ppf(0.5 + found.level / 2)
    if truth["effective"] is not None:
        df = truth["effective"] - 1
        se = np.where(df < 1, np.maximum(se, np.sqrt(np.diag(truth["model"]))), se)
        q = student.ppf(0.5 + found.level / 2, np.maximum(df, 1))
    q = np.broadcast_to(q, se.shape)
    shift = 1300 - POINTS * f[found.items.index(_anchored(options))] if options["anchor"] else 1000
    board = columns_of(found.table)
    rows = [found.items.index(item) for item in board["item"]]
    for name, sign in (("rating", 0), ("lower", -1), ("upper", 1)):
        np.testing.assert_allclose(board[name], shift + POINTS * (f + sign * q[:n] * se[:n])[rows], atol=0.02)
    if options["covariates"] or options["first_side"]:
        effects = columns_of(found.covariates)
        beta = truth["theta"][n:]
        np.testing.assert_allclose(effects["coefficient"], beta, atol=1e-5)
        np.testing.assert_allclose(effects["upper"], beta + q[n:] * se[n:], atol=1e-4)


def _anchored(options):
    name = contract.NAMES[options["names"]][1]
    return str(name).strip() if isinstance(name, str) or options["columns"] == "ranking" else name


@pytest.mark.parametrize("number", range(len(COMBINATIONS)))
def test_options_together_mean_what_they_mean_alone(number):
    check(COMBINATIONS[number])


@pytest.mark.parametrize("number", range(len(ACCEPTED)))
def test_options_that_go_together(number):
    options = ACCEPTED[number]
    assert not contract.refusal(options)
    check(options)
