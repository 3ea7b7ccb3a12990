r"""Hold-out without refitting on device arrays, many folds of the same size at a time.

The formulas are those of `holdout.dual` (full kernel) and `holdout.feature` (linear kernel, reduced set).
Folds are whole queries, any rows of a global ranking, or any rows of a regression. What a batch of folds reads from the
features is formed on the device and discarded. Predictions come back to the host, where they are scored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ...comparisons import Comparisons
from ...kernels.blocks import KernelBlocks
from ...kernels.functions import Kernel
from ...numerics.namespace import Home, as_host
from ..centred_kernel import centre_both_sides
from ..holdout.base import HoldOut, RemovedBasis, intercept_of_rest
from ..holdout.dual import LARGE_ALPHA
from ..holdout.pair import PairSystem, pair_scale, pair_system_of
from ..row_blocks import HalfBlocks, RowBlock, segment_sums
from .kernels import (
    DeviceBasis,
    add_to_diagonal,
    apply_half,
    centred_kernel,
    cholesky,
    eigh,
    half_blocks,
    inverse_from_cholesky,
    own_rows,
    shrink,
    solve_ridge,
    sum_up,
    whitening,
)

# A fold is refitted when a pivot of its small system is this small: what the fold leaves is lost in rounding.
_STABLE = 1e-7


class _DeviceHoldOut(HoldOut):
    """What both have in common: how folds are put into batches."""

    def __init__(self, task: Comparisons, intercept: bool, home: Home):
        self.comparisons, self.intercept, self.home = task, intercept, home
        self._one_block = task.is_one_block
        self._kappa = task.block_scale if self._one_block else 1.0
        self._share = 1.0 / task.n_rows if self._one_block else 0.0

    def predict(self, folds, alphas, *, on_fold=None) -> list[np.ndarray]:
        self._refuse_parts_of_queries(folds)
        predictions: list[Any] = [None] * len(folds)
        n_done = 0
        for numbers in self._batches(folds):
            rows = np.stack([folds[number] for number in numbers])
            scale = self.comparisons.drop_half(folds[numbers[0]]).scale if self._one_block else 1.0
            values = self._predict_batch(rows, [float(alpha) / scale for alpha in alphas])
            for number, value in zip(numbers, values.transpose(1, 0, 2, 3), strict=True):
                predictions[number] = value
            n_done += len(numbers)
            if on_fold is not None:
                on_fold(n_done)
        return predictions

    def _batches(self, folds: Sequence[np.ndarray]) -> Iterator[list[int]]:
        """Folds of one size that share no row, no more than a temporary block can hold."""
        by_size: dict[int, list[int]] = {}
        for number, fold in enumerate(folds):
            by_size.setdefault(fold.shape[0], []).append(number)
        for size, numbers in by_size.items():
            limit = max(1, self.home.block_rows(self._columns_per_row(size)) // size)
            batch: list[int] = []
            taken: set[int] = set()
            for number in numbers:
                rows = folds[number].tolist()
                if len(batch) == limit or (not self._one_block and not taken.isdisjoint(rows)):
                    yield batch
                    batch, taken = [], set()
                batch.append(number)
                taken.update(rows)
            if batch:
                yield batch

    def _columns_per_row(self, size: int) -> int:
        raise NotImplementedError

    def _predict_batch(self, rows: np.ndarray, alphas: list[float]) -> np.ndarray:
        """Predictions of shape (len(alphas), folds, rows of a fold, v); alpha is that of training on the rest."""
        raise NotImplementedError

    def _refuse_parts_of_queries(self, folds: Sequence[np.ndarray]) -> None:
        queries = self.comparisons.queries
        if queries is None or self._one_block:
            return
        for number, fold in enumerate(folds):
            if not queries.are_whole(fold):
                raise ValueError(
                    f"Fold {number} holds out part of a query: on device arrays whole queries leave together. Use "
                    "cv='leave-query-out' or a number of folds with qid, or NumPy arrays (X.cpu().numpy() for a "
                    "PyTorch tensor)."
                )

    def _with_intercept(self, rows: np.ndarray, f: Any, level: Any) -> Any:
        """Add the mean of y minus the mean of f' over the remaining rows; ``level`` is the mean of f' over all rows."""
        if not self.intercept:
            return f
        y = self.comparisons.scores
        y_rest = self.home.put((y.sum(axis=0) - y[rows].sum(axis=1))[:, None, :])
        f_left = self.home.xp.sum(f, axis=1, keepdims=True)
        return f + intercept_of_rest(y.shape[0], y_rest, level, f_left, rows.shape[1])


class DualDeviceHoldOut(_DeviceHoldOut):
    """Full kernel: through the eigendecomposition of G = S K S, or for one alpha its explicit inverse R.

    O(m³) once, then O(|H|² m + |H|³) for a fold and an alpha; two m × m arrays.
    """

    def __init__(
        self, X: Any, kernel: Kernel, task: Comparisons, intercept: bool, many_alphas: bool, home: Home
    ):
        super().__init__(task, intercept, home)
        m = X.shape[0]
        require_device_memory(3 * home.itemsize * m * m, home, m)
        self._halves = halves = half_blocks(task, m, home)
        self._place = np.argsort(halves.order) if halves.order is not None else np.arange(m)
        self._t = halves.target
        anchors = task.anchors()
        means = _AnchorMeans(anchors, halves, m, home)
        G = centred_kernel(X, KernelBlocks(kernel, X, home.xp), halves, home, on_block=means.add)
        self._anchor_of = means.codes
        self._half_means = apply_half(means.finish().T, halves, home).T if anchors is not None else None
        self._trace = float(home.xp.sum(home.xp.linalg.diagonal(G)))
        self._values = self._vectors = self._G = None
        if many_alphas:
            self._values, self._vectors = eigh(G, home)
            self._projected = self._vectors.T @ self._t
            if self._half_means is not None:
                self._projected_means = self._half_means @ self._vectors
            if self._one_block:
                self._vectors = self._vectors - home.xp.mean(self._vectors, axis=0, keepdims=True)
        else:
            self._G = G

    @property
    def largest_eigenvalue(self) -> float:
        if self._values is None:
            raise ValueError("No eigendecomposition was made: use many_alphas=True.")
        return float(self._values[-1])

    @property
    def size(self) -> float:
        return self._trace

    def pair_system(self, alpha: float) -> PairSystem:
        """Every pair of rows, on the host; from the form for one alpha."""
        alpha, kappa, share = pair_scale(self.comparisons, alpha)
        G, size = self._G, self._trace
        assert G is not None
        if share and 0 < alpha < size:
            # The constant that S does not see would contribute 1 / alpha to R, which would swamp the rest.
            G = G + size / self.comparisons.n_rows**2
        R = explicit_inverse(G, alpha, self.home)
        H = as_host(self._G @ R).astype(np.float64) if alpha > LARGE_ALPHA * size else None
        mean = None if self._half_means is None else as_host(self._half_means)[0].astype(np.float64)
        R = as_host(R).astype(np.float64)
        return pair_system_of(R, H, self.comparisons, mean, (alpha, kappa, share, size))

    def _columns_per_row(self, size: int) -> int:
        return self.comparisons.n_rows if self._G is None else 4 * size

    def _predict_batch(self, rows: np.ndarray, alphas: list[float]) -> np.ndarray:
        home, xp = self.home, self.home.xp
        b, h = rows.shape
        places = self._place[rows]
        flat = home.put_as_is(places.reshape(-1))
        V = None
        if self._vectors is not None:
            V = xp.reshape(xp.take(self._vectors, flat, axis=0), (b, h, -1))
        t = xp.reshape(xp.take(self._t, flat, axis=0), (b, h, -1))
        out = []
        for alpha in alphas:
            at = self._model_at(alpha)
            R = _symmetric_product(V, at.rho, V) if V is not None else _blocks_of(at.R, places, home)
            x = xp.reshape(xp.take(at.x, flat, axis=0), (b, h, -1))
            source = -xp.linalg.solve(R, x)
            response = self._mean_response_on(at, V, places)
            if self._one_block:
                level = at.mean_f + xp.sum(response @ source, axis=1, keepdims=True) / h
                f = level + (t + source - xp.sum(source, axis=1, keepdims=True) * self._share) / self._kappa
                out.append(as_host(self._with_intercept(rows, f, level)))
                continue
            f = xp.reshape(xp.take(at.f, flat, axis=0), (b, h, -1))
            f = f + self._invert_half(source - alpha * (R @ source), places)
            out.append(as_host(f if response is None else f + response @ source))
        return np.stack(out).astype(np.float64)

    def _model_at(self, alpha: float) -> _ModelAtAlpha:
        if getattr(self, "_last", (None, None))[0] != alpha or self._G is None:
            self._last = (alpha, _ModelAtAlpha(self, alpha))
        return self._last[1]

    def _mean_response_on(self, at: _ModelAtAlpha, V: Any, places: np.ndarray) -> Any:
        """For each row of a fold, (means of K over its query) S R on the rows of the fold; shape (b, h, h)."""
        if self._half_means is None:
            return None
        home, xp = self.home, self.home.xp
        b, h = places.shape
        mine = home.put_as_is(self._anchor_of[places].reshape(-1))
        if V is not None:
            own = xp.reshape(xp.take(self._projected_means, mine, axis=0), (b, h, -1))
            return _symmetric_product(own, at.rho, V)
        columns = np.broadcast_to(places[:, None, :], (b, h, h))
        flat = self._anchor_of[places][:, :, None] * self.comparisons.n_rows + columns
        return xp.reshape(
            xp.take(xp.reshape(at.mean_response, (-1,)), home.put_as_is(flat.reshape(-1)), axis=0), (b, h, h)
        )

    def _invert_half(self, values: Any, places: np.ndarray) -> Any:
        """S⁺ on the rows of whole queries: the values are put in their places in an otherwise zero vector."""
        home, xp = self.home, self.home.xp
        b, h, v = values.shape
        where = np.full(self.comparisons.n_rows, b * h)
        where[places.reshape(-1)] = np.arange(b * h)
        padded = xp.concat([xp.reshape(values, (b * h, v)), home.zeros(1, v)], axis=0)
        spread = xp.take(padded, home.put_as_is(where), axis=0)
        image = apply_half(spread, self._halves, home, inverse=True)
        return xp.reshape(xp.take(image, home.put_as_is(places.reshape(-1)), axis=0), (b, h, v))


class _ModelAtAlpha:
    """The model of all rows at one λ: x = R t, the predictions f, and what blocks of R are computed from."""

    def __init__(self, owner: DualDeviceHoldOut, alpha: float):
        home, xp = owner.home, owner.home.xp
        self.R = self.rho = self.mean_response = None
        if owner._G is not None:
            self.R = explicit_inverse(owner._G, alpha, home)
            self.x = self.R @ owner._t
            self.mean_response = None if owner._half_means is None else owner._half_means @ self.R
            if owner._one_block:
                centre_both_sides(self.R, xp)
                self.mean_response = self.mean_response - xp.mean(self.mean_response, axis=1, keepdims=True)
        else:
            self.rho = shrink(owner._values, alpha, home)
            # Centred vectors do as well here: t has no component that the centring removes.
            self.x = owner._vectors @ (self.rho[:, None] * owner._projected)
        f = apply_half(owner._t - alpha * self.x, owner._halves, home, inverse=True)
        self.mean_f = home.zeros(1, f.shape[1])
        if owner._half_means is not None:
            means = owner._half_means @ self.x
            f = f + xp.take(means, home.put_as_is(owner._anchor_of), axis=0)
            self.mean_f = means[0:1, :]
        self.f = f


class _AnchorMeans:
    """Means of K over the rows of each anchor, summed up while K is formed."""

    def __init__(self, anchors: Any, halves: HalfBlocks, m: int, home: Home):
        self.home, self._halves = home, halves
        self.codes = np.zeros(m, dtype=np.int64)
        self._table = None
        if anchors is None:
            return
        codes = halves.sort(anchors.codes)
        new = np.ones(m, dtype=bool)
        new[1:] = codes[1:] != codes[:-1]  # rows of an anchor lie side by side
        self.codes = np.cumsum(new) - 1
        self._counts = np.bincount(self.codes)
        self._table = home.zeros(self._counts.shape[0], m)

    def add(self, block: RowBlock, K: Any) -> None:
        if self._table is None:
            return
        codes = self.codes[block.start : block.stop]
        lengths = np.bincount(codes - codes[0])
        sums = segment_sums(K, lengths, codes - codes[0], self.home.xp, self.home.put_as_is)
        self._table[int(codes[0]) : int(codes[-1]) + 1, :] += sums

    def finish(self) -> Any:
        """In the sorted order of the columns."""
        means = self._table / self.home.put(self._counts)[:, None]
        if self._halves.order is None:
            return means
        return self.home.xp.take(means, self.home.put_as_is(self._halves.order), axis=1)


class FeatureDeviceHoldOut(_DeviceHoldOut):
    """Features: Z = Φ U with Zᵀ L Z = diag(s); held-out basis vectors leave the model too.

    O(m r²) once, then O(|H| r² + |H|² r) for a fold and an alpha. Φ is formed again for the rows of each batch of
    folds. `s`, `c`, `mean` are those of `holdout.feature.FeatureHoldOut`, on the device; `halves` are the blocks
    of rows.
    """

    def __init__(
        self,
        X: Any,
        kernel: Kernel,
        task: Comparisons,
        basis: DeviceBasis | None,
        intercept: bool,
        home: Home,
    ):
        super().__init__(task, intercept, home)
        xp = home.xp
        self._X = X
        W = whitening(basis.K, home) if basis is not None else None
        width = X.shape[1] if W is None else W.shape[1]
        self._blocks = None if basis is None else basis.blocks
        self.halves = half_blocks(task, width if basis is None else basis.basis_.shape[0], home)

        def form(block: RowBlock) -> Any:
            if basis is None:
                return own_rows(X, block, home)
            return basis.blocks(home.rows(X, block.rows)) @ W

        A, c = sum_up(form, self.halves, width, task.n_outputs, home)
        self.s, U = eigh(A, home)
        self.c = U.T @ c
        self._to_Z = U if W is None else W @ U
        self.mean = sum(xp.sum(self.Z(block.rows), axis=0) for block in self.halves.blocks) / task.n_rows
        self._removed_basis: RemovedBasis | None = None
        if basis is not None and basis.well_conditioned:
            numbers = np.arange(basis.basis_indices_.shape[0])  # well conditioned: no two are equal
            self._removed_basis = RemovedBasis(numbers, basis.basis_indices_, task.n_rows)
            Q = self._to_Z
            self._E = Q / xp.sqrt(xp.sum(Q * Q, axis=1, keepdims=True))

    @property
    def largest_eigenvalue(self) -> float:
        return float(self.s[-1])

    def Z(self, rows: Any) -> Any:
        """Some rows of Z, formed from X on each call."""
        X = self.home.rows(self._X, rows)
        return (X if self._blocks is None else self._blocks(X)) @ self._to_Z

    def _columns_per_row(self, size: int) -> int:
        return 4 * max(self._to_Z.shape[0], size)

    def _predict_batch(self, rows: np.ndarray, alphas: list[float]) -> np.ndarray:
        xp = self.home.xp
        b, h = rows.shape
        Z, Y, t = self._read(rows)
        E, blank = self._constraints(rows)
        wide = xp.concat(
            [Z, xp.zeros_like(Z[:, :1, :]) + self.mean], axis=1
        )  # the mean row is predicted as an additional one
        out = np.empty((len(alphas), b, h, self.c.shape[1]))
        for k, alpha in enumerate(alphas):
            found = None if h > self.s.shape[0] else self._small(alpha, wide, Y, t, E, blank)
            if found is None:
                found = self._retrain(alpha, wide, Y, t, E, blank)
            f, level = found[:, :h, :], found[:, h:, :]
            out[k] = as_host(self._with_intercept(rows, f, level))
        return out

    def _read(self, rows: np.ndarray) -> tuple[Any, Any, Any]:
        """Z, the columns Y that leave (S Z, or κ (Z - mean) for a global ranking) and their targets, fold by fold."""
        home, xp = self.home, self.home.xp
        b, h = rows.shape
        flat = rows.reshape(-1)
        Z = self.Z(flat)
        t = home.put(self.comparisons.half_target[flat])
        if self._one_block:
            Y = self._kappa * (Z - self.mean)
        else:
            local = HalfBlocks(self.comparisons.take(flat), flat.shape[0], xp, home.put, home.put_as_is)
            sorted_Z = Z if local.order is None else xp.take(Z, home.put_as_is(local.order), axis=0)
            Y = apply_half(sorted_Z, local, home)
            if local.order is not None:
                Y = xp.take(Y, home.put_as_is(np.argsort(local.order)), axis=0)
        return tuple(xp.reshape(A, (b, h, A.shape[1])) for A in (Z, Y, t))  # type: ignore[return-value]

    def _constraints(self, rows: np.ndarray) -> tuple[Any, Any]:
        """E of the basis vectors among the rows, shape (b, e, r), zero where a fold has fewer; and a 1 for each."""
        home, xp = self.home, self.home.xp
        b, r = rows.shape[0], self.s.shape[0]
        if self._removed_basis is None:
            return home.zeros(b, 0, r), home.zeros(b, 0, 0)
        numbers = self._removed_basis.numbers_of_folds(rows)
        e = int((numbers >= 0).sum(axis=1).max())
        numbers = numbers[:, :e]
        there = home.put((numbers >= 0).astype(float))
        E = xp.take(self._E, home.put_as_is(np.maximum(numbers, 0).reshape(-1)), axis=0)
        E = xp.reshape(E, (b, e, r)) * there[:, :, None]
        return E, (1 - there)[:, :, None] * home.eye(e)

    def _small(self, alpha: float, wide: Any, Y: Any, t: Any, E: Any, blank: Any) -> Any | None:
        """Predictions through systems of the size of a fold; None where rounding makes them useless.

        M = Γ - Y D Yᵀ, w' = w + D Yᵀ M⁻¹ (Y w - t), and then E w' = 0.
        """
        home, xp = self.home, self.home.xp
        b, h, v = t.shape
        D = 1.0 / (self.s + alpha)
        w = D[:, None] * self.c
        DY = xp.matrix_transpose(Y * D)
        M = home.eye(h) - self._share - Y @ DY
        factor = cholesky(M, home)
        if factor is None or float(xp.min(xp.linalg.diagonal(factor))) ** 2 < _STABLE:
            return None
        ED = xp.matrix_transpose(E * D)
        solved = xp.linalg.solve(M, xp.concat([Y @ w - t, Y @ ED], axis=2))
        return _constrained(wide, E, w, ED, DY, solved, v, blank, xp)

    def _retrain(self, alpha: float, wide: Any, Y: Any, t: Any, E: Any, blank: Any) -> Any:
        """Predictions through systems of the width of the features: A' = diag(s) - Yᵀ Γ⁻¹ Y, fold by fold."""
        home, xp = self.home, self.home.xp
        v, h, found = t.shape[2], t.shape[1], []
        grow = self._share / (1 - h * self._share)  # Γ⁻¹ = I + 1 1ᵀ / (m - h)
        for k in range(t.shape[0]):
            Yk, tk, Ek = Y[k, ...], t[k, ...], E[k, ...]
            sums = xp.sum(Yk, axis=0)
            A = home.eye(self.s.shape[0]) * self.s
            A = A - Yk.T @ Yk - grow * (sums[:, None] * sums[None, :])
            c = self.c - Yk.T @ tk - grow * (sums[:, None] * xp.sum(tk, axis=0)[None, :])
            image = solve_ridge(A, xp.concat([c, Ek.T], axis=1), alpha, home)
            w, PE = image[:, :v], image[:, v:]
            if Ek.shape[0]:
                w = w - PE @ xp.linalg.solve(Ek @ PE + blank[k, ...], Ek @ w)
            found.append(wide[k, ...] @ w)
        return xp.stack(found)


def _constrained(
    wide: Any, E: Any, w: Any, ED: Any, DY: Any, solved: Any, v: int, blank: Any, xp: Any
) -> Any:
    """wide @ w' where w' = w + D Yᵀ (solved) and E w' = 0, for every fold."""
    of_rows, of_basis = solved[:, :, :v], solved[:, :, v:]
    reach = wide @ DY
    f = wide @ w + reach @ of_rows
    if E.shape[1] == 0:
        return f
    back = E @ DY
    lost = E @ w + back @ of_rows
    system = E @ ED + back @ of_basis + blank
    return f - (wide @ ED + reach @ of_basis) @ xp.linalg.solve(system, lost)


def explicit_inverse(G: Any, alpha: float, home: Home) -> Any:
    """(G + λ I)⁻¹ as a full matrix; through the eigendecomposition where λ is lost in rounding."""
    factor = cholesky(add_to_diagonal(home.xp.asarray(G, copy=True), alpha, home), home)
    if factor is not None:
        return inverse_from_cholesky(factor, home)
    values, vectors = eigh(G, home)
    return (vectors / (values + alpha)) @ vectors.T


def _symmetric_product(A: Any, rho: Any, B: Any) -> Any:
    """A diag(rho) Bᵀ for every fold."""
    return (A * rho) @ B.mT if hasattr(B, "mT") else (A * rho) @ B.T


def _blocks_of(R: Any, places: np.ndarray, home: Home) -> Any:
    """The blocks of a square matrix on the rows of each fold, shape (b, h, h)."""
    b, h = places.shape
    flat = places[:, :, None] * R.shape[1] + places[:, None, :]
    entries = home.xp.take(home.xp.reshape(R, (-1,)), home.put_as_is(flat.reshape(-1)), axis=0)
    return home.xp.reshape(entries, (b, h, h))


def require_device_memory(n_bytes: int, home: Home, m: int) -> None:
    free = home.free_bytes()
    if free is not None and n_bytes > free:
        raise MemoryError(
            f"Exact cross-validation with the full kernel of {m} rows needs {n_bytes / 1e9:.1f} GB on {home.device}, "
            f"and {free / 1e9:.1f} GB are free. Use n_basis=... (a reduced set of basis vectors)."
        )
