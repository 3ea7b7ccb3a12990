"""The band form: the inverses of B + λ I for several λ, from one reduction."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflearn._engine.core import band
from preflearn._engine.core.band import BandForm
from preflearn._engine.core.tridiagonal import TridiagonalForm
from strategies import examples


@examples(60)
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 7),
    st.sampled_from([1e-3, 1.0, 1e6]),
    st.integers(0, 99),
)
def test_it_is_the_inverse(n, rank, block, alpha, seed):
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(n, rank))
    B = A @ A.T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(band, "_BLOCK", block)
        patched.setattr(band, "_STRIPE", 5)
        form = BandForm(B.copy(order="F"))
        wanted = np.linalg.inv(B + alpha * np.eye(n))
        V = rng.normal(size=(n, 3))
        Qt = form.transposed
        np.testing.assert_allclose(Qt @ Qt.T, np.eye(n), atol=1e-12)
        limits = {"rtol": 1e-7, "atol": 1e-9 * abs(wanted).max()}
        np.testing.assert_allclose(
            Qt.T @ form.inverse(alpha)(Qt @ V), wanted @ V, rtol=1e-7, atol=1e-7 / alpha
        )
        np.testing.assert_allclose(form.inverse_diagonal(alpha), np.diagonal(wanted), **limits)
        np.testing.assert_allclose(
            Qt.T @ form.multiply(Qt @ V), B @ V, atol=1e-11 * max(1.0, abs(B).max()) * n
        )
        values = np.linalg.eigvalsh(B)
        assert form.largest == pytest.approx(values[-1], rel=1e-9, abs=1e-12)
        assert form.smallest == pytest.approx(values[0], abs=1e-10 * max(1.0, values[-1]))
        # Where alpha is lost in rounding, directions that are none have 1 / alpha.
        tiny = form.inverse(1e-30)(np.eye(n))
        assert np.isfinite(tiny).all()


def test_both_forms_agree_and_know_their_condition():
    rng = np.random.default_rng(0)
    A = rng.normal(size=(200, 150))
    B = A @ A.T
    narrow, wide = TridiagonalForm(B.copy(order="F")), BandForm(B.copy(order="F"))
    assert wide.largest == pytest.approx(narrow.largest)
    for alpha in (1e-12, 1e-2, 10.0):
        enough = narrow.reciprocal_condition(alpha) >= 2.0**-30
        assert (wide.reciprocal_condition(alpha) >= 2.0**-30) == enough
    np.testing.assert_allclose(wide.inverse_diagonal(0.1), narrow.inverse_diagonal(0.1), rtol=1e-8)
