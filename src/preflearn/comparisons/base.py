"""The interface of a set of comparisons.

Every least-squares learner minimises J(f) = ‖z - Mᵀ f‖² + λ ‖f‖² over the predictions f of m rows, where M is the
m × l oriented, weighted incidence matrix of the l comparisons and z their targets. It sees the comparisons only
through the graph Laplacian L = M Mᵀ and the vector b = M z.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from .grouping import Groups, centred, one_group


@dataclass(frozen=True)
class Removal:
    """The change of L and b when rows leave: L' = scale (L - N diag(σ) Nᵀ), b' = scale (b - d).

    Attributes
    ----------
    rows : ndarray of shape (p,)
        The rows that N and d are given on; they are zero elsewhere.
    columns : ndarray of shape (p, k)
        N on those rows.
    signs : ndarray of shape (k,)
        σ, each 1 or -1; all 1 when comparisons are only lost, -1 where the rest of a query gains weight.
    change : ndarray of shape (p, v)
        d on those rows.
    scale : float
        Training on the rest at λ is training on L - N diag(σ) Nᵀ, b - d at λ / scale.
    centred : bool
        Whether the means over all m rows are still to be subtracted from N and d. A row that leaves a global ranking
        touches every other row, but only through a constant.
    """

    rows: np.ndarray
    columns: np.ndarray
    signs: np.ndarray
    change: np.ndarray
    scale: float = 1.0
    centred: bool = False


@dataclass(frozen=True)
class HalfRemoval:
    """The same change seen through the symmetric half: L' = scale S (I - Ñ diag(e) Ñᵀ) S, b' = scale S (t - δ).

    Ñ has orthonormal columns. Comparisons that are lost altogether have e = 1: there the dual variables are zero.

    Attributes
    ----------
    rows : ndarray of shape (p,)
        The rows that Ñ and δ are given on.
    columns : ndarray of shape (p, k) or None
        Ñ on those rows; None for the identity with e = 1 and δ = 0, when rows leave with all that they compare.
    lost : ndarray of shape (k,) or None
        e.
    change : ndarray of shape (p, v) or None
        δ on those rows.
    scale : float
    centred : bool
        For a global ranking: Ñ spans the centred unit vectors of `rows`.
    """

    rows: np.ndarray
    columns: np.ndarray | None = None
    lost: np.ndarray | None = None
    change: np.ndarray | None = None
    scale: float = 1.0
    centred: bool = False


class Comparisons(ABC):
    """L and b of a squared loss over comparisons of m rows.

    Attributes
    ----------
    n_rows : int
        m, the number of rows.
    target : ndarray of shape (m, v)
        b = M z, one column per output.
    n_comparisons : int
        Number of comparisons that are counted.
    has_half : bool
        Whether a symmetric half S with S S = L is known in closed form; then `half` and `half_target` work.
    has_factor : bool
        Whether `least_squares` costs no more than a product with L, even without a symmetric half.
    factors_in_blocks : bool
        Whether `factor_blocks` gives its rows block by block.
    drops_densely : bool
        Whether a row that leaves changes what all rows of its query compare, and L of the rest costs less than `drop`.
    ignores_constants : bool
        Whether L 1 = 0: a constant added to all f changes no comparison.
    queries : Groups or None
        The queries that rows are compared within: L is block diagonal over them. None where rows are not grouped.
    scores : ndarray of shape (m, v)
        The scores that were compared; only where comparisons are made from scores within queries.
    row_weights : ndarray of shape (m,) or None
        How much each row counts; None where all rows count equally.
    """

    n_rows: int
    target: np.ndarray
    n_comparisons: int
    has_half: bool = False
    has_factor: bool = False
    factors_in_blocks: bool = False
    drops_densely: bool = False
    ignores_constants: bool = True
    queries: Groups | None = None
    scores: np.ndarray
    row_weights: np.ndarray | None = None

    @property
    def n_outputs(self) -> int:
        """v, the number of outputs that share this L."""
        return self.target.shape[1]

    @property
    def is_one_block(self) -> bool:
        """Whether this is a global ranking with ties included: L = κ² C, C = I - 1 1ᵀ / m being the centring."""
        return False

    @property
    def block_scale(self) -> float:
        """κ of L = κ² C, S = κ C, where `is_one_block`."""
        raise ValueError(f"{type(self).__name__}: only a global ranking with ties included has one scale.")

    @property
    def drops_row_by_row(self) -> bool:
        """Whether `drop` gives one column for each row that leaves, though the rows are compared with all others."""
        return self.is_one_block

    def magnitudes_without(self, rows: np.ndarray) -> Comparisons | None:
        """Comparisons with the same L, and with b of the rows that stay, whose rows leave one by one.

        None where `drop` serves.
        """
        return None

    @property
    def whole_queries_only(self) -> bool:
        """Whether `drop` refuses part of a query: what the rest should weigh is not defined."""
        return False

    @property
    def alike(self) -> Groups | None:
        """Tie groups of one ranking, whose rows are not compared with each other and with all others in the same way.

        None where there are several queries, weights, or no ties.
        """
        return None

    @abstractmethod
    def laplacian(self, V: np.ndarray) -> np.ndarray:
        """L @ V for V of shape (m,) or (m, k)."""

    @abstractmethod
    def diagonal(self) -> np.ndarray:
        """The diagonal of L, shape (m,)."""

    @abstractmethod
    def indicators(self) -> list[tuple[sp.csr_array, np.ndarray]]:
        """Pairs (E, c) of a sparse m × k matrix and k coefficients with L = Σ E diag(c) Eᵀ.

        They apply L to sparse features without making them dense.
        """

    @abstractmethod
    def take(self, rows: np.ndarray) -> Comparisons:
        """The comparisons among some of the rows, as if there were no others."""

    @abstractmethod
    def drop(self, rows: np.ndarray) -> Removal:
        """The change of L and b when the given rows leave, as a matrix of few columns.

        Raises
        ------
        ValueError
            If the change is not of that form; the text says which rows must leave together.
        """

    def half(self, V: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
        """S @ V, where S is symmetric and S S = L."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def half_inverse(self, V: np.ndarray) -> np.ndarray:
        """S⁺ @ V, the pseudo-inverse of the symmetric half."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def anchors(self) -> Groups | None:
        """Groups of rows inside which S loses no more than a constant; None when S is invertible.

        S⁺ S f is f minus its mean over each group, so scores follow from S f and one mean per group.
        """
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def drop_half(self, rows: np.ndarray) -> HalfRemoval:
        """The change when rows leave, seen through the symmetric half."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    @property
    def half_target(self) -> np.ndarray:
        """t with S t = b, shape (m, v)."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def half_levels(self) -> list[Groups]:
        """The nested groups whose means S subtracts, the coarsest first: queries, then tie groups; none for S = I.

        With one level S = diag(√c) (I - O), with two S = diag(√d) (I - P) + diag(√c) (P - O), where O and P average
        over the groups of each level; c and d come from `half_factors`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def half_factors(self) -> tuple[np.ndarray, np.ndarray]:
        """c and d of `half_levels`, each of shape (m,)."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def half_both_sides(self, K: np.ndarray) -> np.ndarray:
        """S K S in the memory of the C-contiguous, symmetric K."""
        raise NotImplementedError(f"{type(self).__name__} has no symmetric half in closed form.")

    def blocks(self, V: np.ndarray, n_rows: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Pairs (A, B) of row blocks with Vᵀ L V = Σ Aᵀ B; A and B are the same array where there is a half.

        They allow a Gram matrix to be summed with one block of temporary memory.
        """
        if self.ignores_constants:
            V = centred(V, one_group(self.n_rows))[0]
        image = self.laplacian(V)
        for start in range(0, self.n_rows, n_rows):
            rows = slice(start, start + n_rows)
            yield V[rows], image[rows]

    def half_blocks(self, V: np.ndarray, n_rows: int, rows: np.ndarray | None = None) -> Iterator[np.ndarray]:
        """Row blocks of [S V, t] in some order: their Gram matrix holds Vᵀ L V and Vᵀ b at once.

        Parameters
        ----------
        V : ndarray of shape (m, n), or of more rows with ``rows``
        n_rows : int
            Maximum number of rows of a block.
        rows : ndarray of shape (m,), optional
            The rows of V that are compared; all of them in order by default.
        """
        V = V if rows is None else V[rows]
        block = np.empty((self.n_rows, V.shape[1] + self.n_outputs), dtype=V.dtype)
        block[:, : V.shape[1]] = self.half(V)
        block[:, V.shape[1] :] = self.half_target
        yield block

    def factor_blocks(
        self, form: Callable[[np.ndarray], np.ndarray], n_rows: int
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Row blocks of T and t of `least_squares`, for a V that is formed in parts.

        Parameters
        ----------
        form : callable
            Row numbers to those rows of V; each row is asked for once.
        n_rows : int
            Maximum number of rows that are asked for.
        """
        raise NotImplementedError(f"{type(self).__name__} has no factor in blocks of rows.")

    def least_squares(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T and t with Tᵀ T = Vᵀ L V and Tᵀ t = Vᵀ b: the loss is ‖T w - t‖² up to a constant, and nothing is squared.

        T is S V with a half in closed form, otherwise it comes from the eigendecomposition of L: O(m³).
        """
        if self.has_half:
            return self.half(V), self.half_target
        if self.ignores_constants:
            V = centred(V, one_group(self.n_rows))[0]
        values, vectors = np.linalg.eigh(self.to_dense())
        keep = values > values.shape[0] * np.finfo(float).eps * np.abs(values).max(initial=0.0)
        root, vectors = np.sqrt(values[keep])[:, None], vectors[:, keep]
        return root * (vectors.T @ V), (vectors.T @ self.target) / root

    def squared_targets(self) -> np.ndarray:
        """zᵀz of each output, the value of the loss at f = 0, shape (v,)."""
        raise NotImplementedError(f"{type(self).__name__} does not give the value of its loss.")

    def total_weight(self) -> float:
        """Sum of the weights of the comparisons: the loss over this is a mean."""
        raise NotImplementedError(f"{type(self).__name__} does not give the value of its loss.")

    def to_dense(self) -> np.ndarray:
        """L as an m × m array; for tests and small problems."""
        return self.laplacian(np.eye(self.n_rows))


# Rows that leave a block-diagonal L. Only the blocks of the queries that lose rows change: L - L' = N diag(σ) Nᵀ with
# at most n_q columns for each of them.


def parts_change_weight(queries: Groups, weighting: str) -> bool:
    """Whether the rest of a query would weigh more relative to the others when part of it leaves."""
    return weighting == "query" and queries.n_groups > 1


def drop_from_blocks(comparisons: Comparisons, rows: np.ndarray, queries: Groups) -> Removal:
    """The removal of rows from queries, whole or in part. O(n_q³) for each query that loses rows.

    Raises
    ------
    ValueError
        If part of a query leaves under weighting "query": all queries are to have the same weight, which does not
        define the weight of a part of one.
    """
    leaving = np.zeros(comparisons.n_rows, dtype=bool)
    leaving[rows] = True
    parts = [
        _drop_from_query(comparisons, queries.rows(query), leaving)
        for query in np.unique(queries.codes[rows])
    ]
    return Removal(
        rows=np.concatenate([members for members, _, _, _ in parts]),
        columns=_block_diagonal([columns for _, columns, _, _ in parts]),
        signs=np.concatenate([signs for _, _, signs, _ in parts]),
        change=np.concatenate([change for _, _, _, change in parts]),
    )


def drop_half_from_blocks(comparisons: Comparisons, rows: np.ndarray, queries: Groups) -> HalfRemoval:
    """The same removal seen through the symmetric half; free when whole queries leave."""
    leaving = np.zeros(comparisons.n_rows, dtype=bool)
    leaving[rows] = True
    touched = np.unique(queries.codes[rows])
    members = np.concatenate([queries.rows(query) for query in touched])
    if queries.are_whole(rows):
        return HalfRemoval(members)
    parts = [_half_drop_from_query(comparisons, queries.rows(query), leaving) for query in touched]
    return HalfRemoval(
        rows=members,
        columns=_block_diagonal([columns for columns, _, _ in parts]),
        lost=np.concatenate([lost for _, lost, _ in parts]),
        change=np.concatenate([change for _, _, change in parts]),
    )


def _half_drop_from_query(comparisons, members, leaving):
    _, columns, signs, lost_target = _drop_from_query(comparisons, members, leaving)
    inverse = comparisons.take(members).half_inverse(np.eye(members.shape[0]))
    seen = inverse @ columns
    values, vectors = np.linalg.eigh((seen * signs) @ seen.T)
    keep = np.abs(values) > values.shape[0] * np.finfo(float).eps
    return vectors[:, keep], values[keep], inverse @ lost_target


def _drop_from_query(comparisons, members, leaving):
    here = comparisons.take(members)
    lost, lost_target = here.to_dense(), here.target.copy()
    stays = np.flatnonzero(~leaving[members])
    if stays.size:
        if comparisons.whole_queries_only and stays.size < members.size:
            raise ValueError(
                "Part of a query is held out under weighting='query', where all queries have the same weight: the "
                "weights of the remaining pairs of that query would change. Hold out whole queries together, or use "
                "weighting='pair' or 'item'."
            )
        rest = here.take(stays)
        lost[np.ix_(stays, stays)] -= rest.to_dense()
        # What leaves is a difference of weights of pairs; in a difference of sums a light pair would be lost next to a
        # heavy one.
        np.fill_diagonal(lost, 0.0)
        np.fill_diagonal(lost, -lost.sum(axis=1))
        lost_target[stays] -= rest.target
    values, vectors = np.linalg.eigh(lost)
    size = np.abs(values)
    keep = size > size.max(initial=0.0) * size.shape[0] * np.finfo(float).eps
    return members, vectors[:, keep] * np.sqrt(size[keep]), np.sign(values[keep]), lost_target


def _block_diagonal(blocks: list[np.ndarray]) -> np.ndarray:
    heights = [block.shape[0] for block in blocks]
    widths = [block.shape[1] for block in blocks]
    out = np.zeros((sum(heights), sum(widths)))
    row = column = 0
    for block, height, width in zip(blocks, heights, widths, strict=True):
        out[row : row + height, column : column + width] = block
        row, column = row + height, column + width
    return out
