"""The tridiagonal form: the inverses of B + λ I for several λ, from one reduction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn.squared.tridiagonal import TridiagonalForm
from strategies import examples


@examples(60)
@given(st.integers(1, 40), st.integers(1, 40), st.sampled_from([1e-3, 1.0, 1e6]), st.integers(0, 99))
def test_it_is_the_inverse(n, rank, alpha, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, rank))
    B = A @ A.T
    form = TridiagonalForm(B.copy(order="F"))
    wanted = np.linalg.inv(B + alpha * np.eye(n))
    V = rng.normal(size=(n, 3))
    Qt = form.transposed
    np.testing.assert_allclose(Qt @ Qt.T, np.eye(n), atol=1e-12)
    limits = {"rtol": 1e-7, "atol": 1e-9 * abs(wanted).max()}
    np.testing.assert_allclose(Qt.T @ form.inverse(alpha)(Qt @ V), wanted @ V, rtol=1e-7, atol=1e-7 / alpha)
    np.testing.assert_allclose(form.inverse_diagonal(alpha), np.diagonal(wanted), **limits)
    np.testing.assert_allclose(Qt.T @ form.multiply(Qt @ V), B @ V, atol=1e-11 * max(1.0, abs(B).max()) * n)
    assert form.largest == pytest.approx(np.linalg.eigvalsh(B)[-1], rel=1e-9, abs=1e-12)
    # Where alpha is lost in rounding, directions that are none have 1 / alpha.
    assert np.isfinite(form.inverse(1e-30)(np.eye(n))).all()
