r"""Some labels known: conjugate gradients through products at the known pairs, never a matrix of all pairs of pairs.

For the e known pairs with labels y, the pairwise kernel Q among them and L = I, or the centring of the known labels of
each column (row) where rows (columns) are compared,

    (L Q L + λ I) a = L y.

A product with Q costs O(e (p + q)) by `_loops`, preconditioned by the diagonal, or two dense products where many
pairs are known. In the second case the problem is solved in the modes of the two sides, K = V diag(σ) Vᵀ and
G = W diag(γ) Wᵀ, where it hardly differs from that of complete labels: with s² = σγᵀ, f = V (s ∘ w) Wᵀ and P the known
pairs,

    (s ∘ Vᵀ Pᵀ L P V ∘ s + λ I) w = s ∘ Vᵀ Pᵀ L y Wᵀ,        preconditioned by (ρ s² + λ)⁻¹, ρ = e / (p q):

5 to 30 iterations instead of hundreds. Modes with s² < 1e-9 λ, which change f by less than 1e-9 of y - f, are left out.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from ..numerics.linalg import eigh_in_place
from ..numerics.memory import fits_in_memory
from ..progress import Stages
from ..squared.conjugate_gradients import ConjugateGradientResult, iterate
from ..squared.routes import LONG, RATE, callers_level, in_words
from .grammar import RelationFolds
from .inputs import Side
from .pairwise import PairwiseKernel, Term

# Operations of a dense product in the time of one operation of a sampled product.
_DENSE_GAIN = 8
# Up to this many objects of a side its eigendecomposition takes less than the iterations that it saves.
_FEW_OBJECTS = 3000
# Iterations that are expected in the modes of the sides, and preconditioned by the diagonal.
_IN_MODES, _BY_DIAGONAL = 15, 200
# Up to this many pairs, one eigendecomposition is faster than iterations for a grid of alphas.
_FEW_PAIRS = 1500
# Modes with a smaller share of λ are left out.
_NEGLIGIBLE = 1e-9


@dataclass
class KnownPairs:
    """The problem of the known pairs.

    Attributes
    ----------
    K, G : ndarray of shape (p, p) and (q, q), C-contiguous
    row, column : int arrays of shape (e,)
    y : ndarray of shape (e,)
    pairwise : PairwiseKernel
    compare : {None, "rows", "columns"}
    """

    K: np.ndarray
    G: np.ndarray
    row: np.ndarray
    column: np.ndarray
    y: np.ndarray
    pairwise: PairwiseKernel
    compare: str | None = None
    sides: tuple[Side, Side] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        p, q = self.shape
        e = self.y.shape[0]
        self.is_dense = e * _DENSE_GAIN >= p * q and fits_in_memory(4 * 8 * p * q)
        self._products: dict[bool, Any] = {}
        group, n_groups = (self.column, q) if self.compare == "rows" else (self.row, p)
        self._group = group if self.compare is not None else None
        self._counts = np.maximum(np.bincount(group, minlength=n_groups), 1)
        if self.sides is None and self.is_dense and max(p, q) <= _FEW_OBJECTS:
            self.sides = Side.decompose(self.K, compared=False), Side.decompose(self.G, compared=False)

    @property
    def shape(self) -> tuple[int, int]:
        return self.K.shape[0], self.G.shape[0]

    def only(self, kept: np.ndarray) -> KnownPairs:
        """The problem of some of the pairs."""
        return KnownPairs(
            self.K,
            self.G,
            self.row[kept],
            self.column[kept],
            self.y[kept],
            self.pairwise,
            self.compare,
            self.sides,
        )

    # -------------------------------------------------------------------------------------------- products

    def centre(self, values: np.ndarray) -> np.ndarray:
        """L values."""
        if self._group is None:
            return values
        sums = np.bincount(self._group, weights=values, minlength=self._counts.shape[0])
        return values - (sums / self._counts)[self._group]

    def product(self, a: np.ndarray) -> np.ndarray:
        """Q a, shape (e,)."""
        return sum((term.weight * self._term(term, a) for term in self.pairwise.terms()), np.zeros_like(a))

    def _term(self, term: Term, a: np.ndarray) -> np.ndarray:
        rows, columns = (self.column, self.row) if term.exchanged else (self.row, self.column)
        p, q = self.shape
        if term.row == "ones":
            return (self.G @ np.bincount(columns, weights=a, minlength=q))[self.column]
        if term.column == "ones":
            return (self.K @ np.bincount(rows, weights=a, minlength=p))[self.row]
        if self.is_dense:
            return self._dense_term(term, a, rows, columns)
        from ._loops import SampledProduct

        if term.exchanged not in self._products:
            self._products[term.exchanged] = SampledProduct(rows, columns, self.row, self.column, p, q)
        K = self.K if term.row == "kernel" else np.eye(p)
        G = self.G if term.column == "kernel" else np.eye(q)
        return self._products[term.exchanged](K, G, a)

    def _dense_term(self, term: Term, a: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
        A = np.zeros(self.shape)
        A[rows, columns] = a
        if term.row == "kernel":
            A = self.K @ A
        if term.column == "kernel":
            A = A @ self.G
        return A[self.row, self.column]

    def largest_eigenvalue(self) -> float:
        """The largest eigenvalue of L Q L, to about one digit: it shows which alphas matter."""
        vector: np.ndarray = np.random.default_rng(0).standard_normal(self.y.shape)
        size = 0.0
        for _ in range(10):  # power iterations, enough for the order of magnitude
            vector = self.centre(vector)
            length = float(np.linalg.norm(vector))
            if not length > 0:
                return size
            vector = self.product(vector / length)
            size = float(np.linalg.norm(vector))
        return size

    @property
    def in_modes(self) -> bool:
        """Whether the problem is solved in the modes of the two sides."""
        closed = self.pairwise.has_closed_form and not self.pairwise.sign
        return self.is_dense and self.sides is not None and closed and self.y.shape[0] > _FEW_PAIRS

    def expected_seconds(self) -> float:
        """Of a solution at one alpha, roughly."""
        p, q = self.shape
        if self.in_modes:
            return _IN_MODES * 2 * p * q * (p + q) / RATE
        product = p * q * (p + q) if self.is_dense else _DENSE_GAIN * self.y.shape[0] * (p + q)
        return _BY_DIAGONAL * product / RATE

    def _diagonal(self) -> np.ndarray:
        k, g = np.diagonal(self.K)[self.row], np.diagonal(self.G)[self.column]
        total = np.zeros(self.y.shape[0])
        for term in self.pairwise.terms():
            if term.exchanged:
                total += term.weight * self.K[self.row, self.column] * self.G[self.column, self.row]
            else:
                total += (
                    term.weight * (k if term.row == "kernel" else 1) * (g if term.column == "kernel" else 1)
                )
        return np.maximum(total, 0.0)

    # -------------------------------------------------------------------------------------------- solving

    def solve(
        self,
        alpha: float,
        *,
        tol: float,
        max_iter: int | None,
        start: np.ndarray | None = None,
        verbose: int = 0,
    ) -> ConjugateGradientResult:
        """Dual coefficients (``weights``: of the known pairs, shape (e, 1), in modes of all, (p q, 1))."""
        if self.in_modes:
            return self._solve_in_modes(alpha, tol=tol, max_iter=max_iter, start=start, verbose=verbose)
        diagonal = self._diagonal()[:, None] + alpha

        def system(a: np.ndarray) -> np.ndarray:
            return (self.centre(self.product(self.centre(a[:, 0]))) + alpha * a[:, 0])[:, None]

        stages = Stages("KroneckerRLS" if verbose else None)
        with stages(f"conjugate gradients, {self.y.shape[0]} pairs, alpha {alpha:.3g}") as stage:
            result = iterate(
                system,
                lambda residual: residual / diagonal,
                self.centre(self.y)[:, None],
                tol=tol,
                max_iter=1000 if max_iter is None else max_iter,
                start=start,
                on_iteration=stage.iteration,
            )
        if result.converged or max_iter is not None or self.y.shape[0] > _FEW_PAIRS:
            return result
        # Ill-conditioned, and small enough for a factorisation.
        ((_, direct),) = self._direct_path([alpha])
        return replace(direct, n_iter=result.n_iter)

    def _solve_in_modes(
        self, alpha: float, *, tol: float, max_iter: int | None, start: np.ndarray | None, verbose: int
    ) -> ConjugateGradientResult:
        """A = V (w / s) Wᵀ; the residual is the error of f in the norm of the problem."""
        assert self.sides is not None
        rows, columns = self.sides
        spectrum = np.maximum(self.pairwise.spectrum(rows.values, columns.values), 0.0)
        seen = spectrum > _NEGLIGIBLE * alpha
        block = np.ix_(seen.any(axis=1), seen.any(axis=0))
        V, W = rows.vectors[:, seen.any(axis=1)], columns.vectors[:, seen.any(axis=0)]
        s = np.sqrt(spectrum[block]).reshape(-1, 1)
        shape = spectrum[block].shape

        def modes(values: np.ndarray) -> np.ndarray:
            full = np.zeros(self.shape)
            full[self.row, self.column] = self.centre(values)
            return s * (V.T @ full @ W).reshape(-1, 1)

        def system(w: np.ndarray) -> np.ndarray:
            f = V @ (s * w).reshape(shape) @ W.T
            return modes(f[self.row, self.column]) + alpha * w

        known = self.y.shape[0] / (self.shape[0] * self.shape[1])
        inverse = 1.0 / (known * s**2 + alpha)
        stages = Stages("KroneckerRLS" if verbose else None)
        with stages(f"conjugate gradients, {self.y.shape[0]} pairs, alpha {alpha:.3g}") as stage:
            result = iterate(
                system,
                lambda residual: inverse * residual,
                modes(self.y),
                tol=tol,
                max_iter=1000 if max_iter is None else max_iter,
                start=None if start is None else s * (V.T @ start.reshape(self.shape) @ W).reshape(-1, 1),
                in_energy=True,
                on_iteration=stage.iteration,
            )
        scaled = np.divide(result.weights, s, out=np.zeros_like(s), where=s > 0).reshape(shape)
        return replace(result, weights=(V @ scaled @ W.T).reshape(-1, 1))

    def path(
        self, alphas: Sequence[float], *, tol: float, max_iter: int | None, verbose: int = 0
    ) -> Iterator[tuple[int, ConjugateGradientResult]]:
        """Solutions from the largest alpha down, each started at the previous one; with the position of its alpha.

        For few pairs and several alphas by one eigendecomposition, O(e³), instead of iterations for each alpha.
        """
        if len(alphas) > 1 and self.y.shape[0] <= _FEW_PAIRS:
            yield from self._direct_path(alphas)
            return
        start = None
        for number in np.argsort(alphas)[::-1]:
            result = self.solve(
                float(alphas[number]), tol=tol, max_iter=max_iter, start=start, verbose=verbose
            )
            start = result.weights
            yield int(number), result

    def _direct_path(self, alphas: Sequence[float]) -> Iterator[tuple[int, ConjugateGradientResult]]:
        """The same with (L Q L + λ I)⁻¹ = V (D + λ I)⁻¹ Vᵀ."""
        Q = self.matrix()
        if self._group is not None:
            Q = np.apply_along_axis(self.centre, 0, np.apply_along_axis(self.centre, 1, Q))
        values, vectors = eigh_in_place(0.5 * (Q + Q.T))
        values = np.maximum(values, 0.0)  # Q is positive semidefinite up to rounding
        target = vectors.T @ self.centre(self.y)
        for number in np.argsort(alphas)[::-1]:
            weights = vectors @ (target / (values + float(alphas[number])))
            yield int(number), ConjugateGradientResult(weights[:, None], 0, 0.0, True)

    def matrix(self) -> np.ndarray:
        """Q, shape (e, e)."""
        total = np.zeros((self.y.shape[0], self.y.shape[0]))
        for term in self.pairwise.terms():
            rows, columns = (self.column, self.row) if term.exchanged else (self.row, self.column)
            factor = np.full_like(total, term.weight)
            for kind, kernel, here, there in (
                (term.row, self.K, self.row, rows),
                (term.column, self.G, self.column, columns),
            ):
                if kind == "kernel":
                    factor *= kernel[np.ix_(here, there)]
                elif kind == "identity":
                    factor *= here[:, None] == there[None, :]
            total += factor
        return total

    def coefficients(self, result: ConjugateGradientResult) -> Any:
        """A of shape (p, q): an array, or a sparse array where few pairs are known."""
        if self.in_modes:
            return result.weights.reshape(self.shape)
        a = self.centre(result.weights[:, 0])
        if not self.is_dense:
            return sp.csr_array((a, (self.row, self.column)), shape=self.shape)
        A = np.zeros(self.shape)
        A[self.row, self.column] = a
        return A

    # -------------------------------------------------------------------------------------------- hold-out

    def held_out(
        self,
        hold_out: RelationFolds,
        alphas: Sequence[float],
        *,
        tol: float,
        max_iter: int | None,
        on_fold=None,
    ) -> np.ndarray:
        """Predictions of what leaves, by training on the pairs that stay; shape (n_alphas, p, q), NaN elsewhere."""
        p, q = self.shape
        n_folds = self._n_trainings(hold_out)
        seconds = n_folds * len(alphas) * self.expected_seconds()
        if seconds > LONG:
            warnings.warn(
                f"{n_folds} folds × {len(alphas)} alphas of {len(self.y)} known labels are expected to take "
                f"{in_words(seconds)}. Less: fewer folds or alphas.",
                UserWarning,
                stacklevel=callers_level(),
            )
        total = np.zeros((len(alphas), p, q))
        count = np.zeros((p, q))
        solved = 0
        with Stages(None)("folds", left=lambda: seconds) as stage:
            for number, (left, test) in enumerate(self._folds(hold_out)):
                kept = np.flatnonzero(~left[self.row, self.column])
                if kept.size == 0:
                    raise ValueError(
                        f"Fold {number} holds out every known label: nothing is left to train on."
                    )
                rest = self.only(kept)
                block = np.ix_(test.any(axis=1), test.any(axis=0))
                inside = test[block]
                K, G = self.K[test.any(axis=1)], self.G[test.any(axis=0)]
                # Coefficients of an object that has left are zero: it may be treated as present.
                same = (
                    (np.eye(p)[block[0][:, 0]], np.eye(q)[block[1][0]]) if self.pairwise.by_identity else ()
                )
                for place, result in rest.path(alphas, tol=tol, max_iter=max_iter):
                    warn_unless_converged(result, tol)
                    F = self.pairwise.predict(rest.coefficients(result), K, G, *same)
                    total[place][block] += np.where(inside, F, 0.0)
                    solved += 1
                    stage.count(solved, n_folds * len(alphas), "solutions")
                count[block] += inside
                if on_fold is not None:
                    on_fold((number + 1) * hold_out.n_folds // n_folds)
        return np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)

    def _n_trainings(self, hold_out: RelationFolds) -> int:
        if hold_out.setting == "entries":
            return len(self.y) if hold_out.entries is None else len(hold_out.entries)
        return math.prod(len(side.tests) for side in (hold_out.rows, hold_out.columns) if side is not None)

    def _folds(self, hold_out: RelationFolds) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Masks of the entries that leave, and of those that are predicted; both p × q."""
        if hold_out.setting == "entries":
            yield from self._entry_folds(hold_out)
            return
        p, q = self.shape
        mirrored = self.pairwise.sign != 0
        every = [(np.arange(0), None)]
        rows = zip(hold_out.rows.leaving, hold_out.rows.tests, strict=True) if hold_out.rows else every
        for row_left, row_test in rows:
            columns = (
                zip(hold_out.columns.leaving, hold_out.columns.tests, strict=True)
                if hold_out.columns
                else every
            )
            for column_left, column_test in columns:
                left, test = np.zeros((p, q), dtype=bool), np.zeros((p, q), dtype=bool)
                left[row_left], left[:, column_left] = True, True
                if mirrored:
                    left[:, row_left], left[column_left] = True, True
                test[np.ix_(_or_all(row_test, p), _or_all(column_test, q))] = True
                yield left, test

    def _entry_folds(self, hold_out: RelationFolds) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        positions = self.row * self.shape[1] + self.column
        folds = positions[:, None] if hold_out.entries is None else hold_out.entries
        for fold in folds:
            test = np.zeros(self.shape, dtype=bool)
            test.flat[fold] = True
            yield (test | test.T if self.pairwise.sign else test), test


def _or_all(test: np.ndarray | None, n: int) -> np.ndarray:
    return np.arange(n) if test is None else test


def warn_unless_converged(result: ConjugateGradientResult, tol: float) -> None:
    """One warning that says how far the iteration got and what to try."""
    if not result.converged:
        warnings.warn(
            f"Conjugate gradients stopped after {result.n_iter} iterations at a relative residual of "
            f"{result.residual:.2e} (tol={tol:g}). Use a larger alpha, more iterations (max_iter) or a larger tol.",
            ConvergenceWarning,
            stacklevel=3,
        )
