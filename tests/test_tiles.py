"""Factorisations by tiles and in short steps, against the matrices that they factor."""

from __future__ import annotations

import os

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from preflearn.numerics import linalg, tiles
from preflearn.numerics import tiles as spectrum
from preflearn.numerics.memory import fits_in_memory


@pytest.fixture
def small_tiles(monkeypatch):
    """Every size is large, and every matrix has many parts."""
    monkeypatch.setattr(linalg, "LARGE", 2)
    monkeypatch.setattr(linalg, "_SMALL_BLOCK", 4)
    monkeypatch.setattr(linalg, "_SMALL_PRODUCT", 4)
    for name, size in {
        "_LEAF": 4,
        "_TILE": 8,
        "_LEAST_TILE": 2,
        "_WIDE": 8,
        "_LEAST_WORK": 4,
        "_LEAST_TILE_WORK": 4,
    }.items():
        monkeypatch.setattr(tiles, name, size)
    for name, size in {"_PANEL": 3, "_LAST_COLUMNS": 5, "_REFLECTORS": 4}.items():
        monkeypatch.setattr(spectrum, name, size)


def positive_definite(n: int, dtype) -> np.ndarray:
    A = np.random.default_rng(n).normal(size=(n, n))
    return np.asfortranarray(A @ A.T / n + np.eye(n), dtype=dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_eigenvalues_of_nothing(dtype, capfd):
    values, vectors = linalg.eigh_in_place(np.zeros((0, 0), dtype, order="F"))
    assert values.shape == (0,) and vectors.shape == (0, 0)
    assert capfd.readouterr() == ("", "")  # LAPACK prints its complaints


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [2, 3, 4, 5, 7, 8, 9, 16, 17, 23, 40, 61])
class TestFactorisations:
    def test_cholesky(self, small_tiles, n, dtype):
        A = positive_definite(n, dtype)
        kept = linalg.cholesky_in_place(A.copy(order="F"))
        np.testing.assert_array_equal(np.triu(kept, 1), np.triu(A, 1))
        C = linalg.cholesky_in_place(A.copy(order="F"), clean=True)
        assert not np.triu(C, 1).any()
        np.testing.assert_allclose(C @ C.T, A, atol=50 * np.finfo(dtype).eps)
        B = np.random.default_rng(0).normal(size=(n, 5)).astype(dtype)
        np.testing.assert_allclose(
            A @ linalg.cholesky_solve(C, B), B, atol=200 * np.sqrt(n) * np.finfo(dtype).eps
        )

    def test_inverse(self, small_tiles, n, dtype):
        A = positive_definite(n, dtype)
        tolerance = {"atol": 200 * np.finfo(dtype).eps}
        np.testing.assert_allclose(linalg.inverse_in_place(A.copy(order="F")) @ A, np.eye(n), **tolerance)

    def test_eigenvalues_and_tridiagonal_form(self, small_tiles, n, dtype):
        A = positive_definite(n, dtype)
        tolerance = {"atol": 100 * np.finfo(dtype).eps}
        values, vectors = linalg.eigh_in_place(A.copy(order="F"))
        assert (np.diff(values) >= 0).all()
        np.testing.assert_allclose((vectors * values) @ vectors.T, A, **tolerance)
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(n), **tolerance)
        Q, diagonal, off_diagonal = linalg.tridiagonalise_in_place(A.copy(order="F"))
        T = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
        np.testing.assert_allclose(Q @ T @ Q.T, A, **tolerance)
        np.testing.assert_allclose(Q.T @ Q, np.eye(n), **tolerance)

    def test_products_and_triangular_solves(self, small_tiles, n, dtype):
        rng = np.random.default_rng(n)
        tolerance = {"atol": 100 * np.finfo(dtype).eps}
        A = rng.normal(size=(6, n)).astype(dtype)
        B = rng.normal(size=(6, n)).astype(dtype)
        start = np.asfortranarray(rng.normal(size=(n, n)), dtype=dtype)
        both = linalg.add_gram(start.copy(order="F"), A, B)
        np.testing.assert_allclose(both, start + A.T @ B, **tolerance)
        half = linalg.add_gram(start.copy(order="F"), A, A)
        np.testing.assert_allclose(half, start + np.tril(A.T @ A), **tolerance)
        signs = np.where(rng.random(6) < 0.5, 1.0, -1.0).astype(dtype)
        less = linalg.subtract_gram(start.copy(order="F"), A.T, signs)
        np.testing.assert_allclose(less, start - np.tril((A.T * signs) @ A), **tolerance)
        C = np.linalg.cholesky(positive_definite(n, dtype))
        found = linalg.solve_triangular_in_place(C, A.copy())
        np.testing.assert_allclose(found @ C.T, A, **tolerance)


@pytest.mark.parametrize("minor", [1, 2, 5, 13, 30])
def test_the_first_minor_that_is_not_positive_is_named(small_tiles, minor):
    A = np.asfortranarray(np.eye(30))
    A[minor - 1, minor - 1] = -1.0
    with pytest.raises(np.linalg.LinAlgError, match=f"leading minor {minor} "):
        linalg.cholesky_in_place(A)


def test_a_zero_on_the_diagonal_of_a_factor_is_named(small_tiles):
    C = np.asfortranarray(np.eye(9))
    C[6, 6] = 0.0
    assert tiles.invert_triangle(C) == 7


def test_a_matrix_of_18_000_rows_meets_blas_in_tiles_and_in_one_thread(monkeypatch):
    """OpenBLAS 0.3.30 crashes on it with two threads or more, in ``syrk`` (and so in ``potrf``).

    The calls are counted instead of made: the whole factorisation, in tiles.
    """
    n, operations, threads = 18_000, 0.0, set()
    work = {
        "potrf": lambda size, *_: size**3 / 3,
        "trsm": lambda rows, size, *_: rows * size**2,
        "syrk": lambda size, depth, *_: size**2 * depth,
        "gemm": lambda rows, columns, depth, *_: 2.0 * rows * columns * depth,
    }

    def counted(name, dtype, *arguments):
        nonlocal operations
        sizes = [one for one in arguments if isinstance(one, int)]
        assert sizes[0] <= 512 and (name != "gemm" or sizes[1] <= 512)
        operations += work[name](*sizes)
        if name == "potrf":
            threads.update(one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas")
        return 0

    monkeypatch.setattr(tiles, "blas", counted)
    monkeypatch.setattr(tiles, "lapack", counted)
    with threadpool_limits(2, user_api="blas"):
        linalg.cholesky_in_place(np.zeros((n, n), order="F"))
    assert threads == {1}
    assert operations == pytest.approx(n**3 / 3, rel=0.02)


@pytest.mark.skipif("CI" in os.environ, reason="a minute; the test above counts the same calls")
@pytest.mark.skipif(not fits_in_memory(6 << 30), reason="needs 6 GB of memory")
def test_a_matrix_of_18_000_rows_is_factored():
    """OpenBLAS 0.3.30 crashes on it with two threads or more, in ``syrk`` (and so in ``potrf``)."""
    n = 18_000
    A = np.zeros((n, n), order="F")
    rows = np.random.default_rng(0).normal(size=(8, n))
    A = linalg.add_gram(A, rows, rows)
    A[np.diag_indices(n)] += n
    C = linalg.cholesky_in_place(A)
    some = np.array([0, 1, 9_000, n - 1])
    product = np.array(
        [[C[i, : j + 1] @ C[j, : j + 1] for j in some[some <= i]] + [0.0] * (some > i).sum() for i in some]
    )
    expected = np.tril(rows[:, some].T @ rows[:, some] + n * np.eye(4))
    np.testing.assert_allclose(product, expected, rtol=1e-12, atol=1e-9)
