r"""Lists of more than two: Plackett and Luce's model of rankings and of choices.

A ranking is a sequence of choices: its first item was chosen among all, the second among the rest, and so on. With
S_s the items among which stage s chose c_s, and p_i = e^{f_i} / Σ_{j in S_s} e^{f_j},

    ℓ(f) = Σ_s w_s [log Σ_{j in S_s} e^{f_j} - f_{c_s}],      ∇ℓ = Σ_s w_s (p_s - e_{c_s}),      ∇²ℓ = Σ_s w_s (diag
    p_s - p_s p_sᵀ).

Of two items this is Bradley and Terry's model. A ranking may end in items without an order: "a > b, c, d" is a choice
of one among four.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from ..comparisons.answers import Answers
from ..errors import InputError
from ..losses.newton import ExactHessian, Features, PairObjective, minimise_logistic

# Coordinates up to which a Hessian is factorised to find strengths.
MOST_FACTORED = 1500


@dataclass(frozen=True)
class Rankings:
    """Choices of r rankings.

    Attributes
    ----------
    members : ndarray of shape (k,)
        The items of all stages, one stage after the other, the chosen one first.
    starts : ndarray of shape (s,)
        Where each stage begins.
    ranking : ndarray of shape (s,)
        The ranking of each stage.
    of_pair : ndarray of shape (l,)
        The ranking of each pair that rankings imply.
    """

    members: np.ndarray
    starts: np.ndarray
    ranking: np.ndarray
    of_pair: np.ndarray

    @property
    def n_rankings(self) -> int:
        return int(self.of_pair.max()) + 1

    def take(self, pairs: np.ndarray) -> Rankings:
        """The rankings of these pairs, all of whose pairs must be among them."""
        kept, of_pair = np.unique(self.of_pair[pairs], return_inverse=True)
        number = np.full(self.n_rankings, -1)
        number[kept] = np.arange(kept.size)
        stages = number[self.ranking] >= 0
        sizes = np.diff(np.append(self.starts, self.members.size))
        starts = np.concatenate([[0], np.cumsum(sizes[stages])[:-1]]).astype(np.int64)
        return Rankings(
            self.members[np.repeat(stages, sizes)], starts, number[self.ranking[stages]], of_pair.ravel()
        )

    def of_rankings(self, values: np.ndarray) -> np.ndarray:
        """What each pair has, such as its weight, as what its ranking has."""
        out = np.zeros(self.n_rankings, dtype=values.dtype)
        out[self.of_pair] = values
        return out


class ChoiceLoss:
    """Minus the log likelihood at one vector of strengths: value, gradient, curvature. O(k).

    Parameters
    ----------
    rankings : Rankings
    weight : ndarray of shape (r,)
    f : ndarray of shape (m,)
    """

    def __init__(self, rankings: Rankings, weight: np.ndarray, f: np.ndarray) -> None:
        self._rankings, starts, members = rankings, rankings.starts, rankings.members
        self._stage = np.repeat(np.arange(starts.size), np.diff(np.append(starts, members.size)))
        self._w = weight[rankings.ranking]
        z = f[members]
        top = np.maximum.reduceat(z, starts)
        e = np.exp(z - top[self._stage])
        total = np.add.reduceat(e, starts)
        self._n = f.shape[0]
        self.p = e / total[self._stage]
        self.value = float(self._w @ (np.log(total) + top - z[starts]))
        self._wp = self._w[self._stage] * self.p
        self.gradient = np.bincount(members, self._wp, self._n) - np.bincount(
            members[starts], self._w, self._n
        )

    @property
    def degrees(self) -> np.ndarray:
        return np.bincount(self._rankings.members, self._wp * (1.0 - self.p), self._n)

    def curvature(self, v: np.ndarray) -> np.ndarray:
        """Hessian times v."""
        members, starts = self._rankings.members, self._rankings.starts
        along = v[members]
        mean = np.add.reduceat(self.p * along, starts)
        return np.bincount(members, self._wp * (along - mean[self._stage]), self._n)

    def hessian(self) -> np.ndarray:
        """∇²ℓ, dense and Fortran-ordered."""
        shape = (self._rankings.starts.size, self._n)
        P = sp.csr_array((self.p, (self._stage, self._rankings.members)), shape=shape)
        H = -(P.T @ sp.diags_array(self._w) @ P).toarray(order="F")
        H[np.diag_indices_from(H)] += np.bincount(self._rankings.members, self._wp, self._n)
        return H

    def informative_rows(self, cluster: np.ndarray) -> tuple[sp.csr_array, np.ndarray]:
        """√(w_s p_i) (e_i - p_s) of each member i of each stage s, and the cluster of each row; cluster of rankings."""
        members, k = self._rankings.members, self._stage.size
        shape = (self._rankings.starts.size, self._n)
        P = sp.csr_array((self.p, (self._stage, members)), shape=shape)
        own = sp.csr_array((np.ones(k), (np.arange(k), members)), shape=(k, self._n))
        rows = sp.diags_array(np.sqrt(self._wp)) @ (own - P[self._stage])
        return sp.csr_array(rows), cluster[self._rankings.ranking][self._stage]

    def cluster_gradients(self, cluster: np.ndarray) -> np.ndarray:
        """Minus the gradient of the rankings of each cluster, shape (G, m)."""
        code, size = cluster[self._rankings.ranking], int(cluster.max()) + 1
        members, starts = self._rankings.members, self._rankings.starts
        g = np.bincount(code * self._n + members[starts], self._w, size * self._n)
        g -= np.bincount(code[self._stage] * self._n + members, self._wp, size * self._n)
        return g.reshape(size, self._n)


class _Choices(PairObjective):
    """Choices as Newton's method sees them."""

    def __init__(self, rankings: Rankings, weight: np.ndarray, n_items: int) -> None:
        super().__init__(
            Features(sp.eye_array(n_items, format="csr")),
            Answers.read(n_items, np.empty((0, 2), dtype=np.int64)),
        )
        self._rankings, self._weight = rankings, weight

    def logistic(self, p: np.ndarray) -> ChoiceLoss:
        return ChoiceLoss(self._rankings, self._weight, p)


def fit_rankings(
    rankings: Rankings, weight: np.ndarray, n_items: int, alpha: float, start: np.ndarray | None
) -> np.ndarray:
    """The strengths that minimise ℓ + alpha ‖f‖²."""
    objective = _Choices(rankings, weight, n_items)
    return minimise_logistic(
        objective, alpha, start=start, preconditioner=ExactHessian(ChoiceLoss.hessian, alpha)
    ).weights.copy()


def read_rankings(table: Any, column: str) -> tuple[list[Hashable], np.ndarray, Rankings]:
    """The items, the pairs that rankings imply (the better one first), and the rankings.

    A ranking is a list of items, best first, whose last entry may be a list of items without an order, or the same as
    text: "a > b > c, d".
    """
    tiers = [_read_tiers(value, row) for row, value in enumerate(_values(table, column))]
    names = {name for one in tiers for tier in one for name in tier}
    items = sorted(names, key=lambda name: (isinstance(name, str), name))
    if not 2 <= len(items) <= MOST_FACTORED:
        raise ValueError(f"Rankings must be of 2 to {MOST_FACTORED:,} items: found {len(items):,}.")
    place = {item: k for k, item in enumerate(items)}
    members: list[int] = []
    starts, of_stage, pairs, of_pair = [], [], [], []
    for number, one in enumerate(tiers):
        rest = [place[name] for tier in one for name in tier]
        n_stages = len(one) - 1
        for _ in range(n_stages):
            starts.append(len(members))
            of_stage.append(number)
            members += rest
            pairs += [(rest[0], other) for other in rest[1:]]
            of_pair += [number] * (len(rest) - 1)
            rest = rest[1:]
    ranking = Rankings(np.array(members), np.array(starts), np.array(of_stage), np.array(of_pair))
    return items, np.array(pairs, dtype=np.int64), ranking


def _values(table: Any, column: str) -> list[Any]:
    import narwhals as nw

    if isinstance(table, Mapping):
        names, values = list(table), table.get(column)
    else:
        frame = nw.from_native(table, eager_only=True)
        names = frame.columns
        values = frame[column].to_list() if column in names else None
    if values is None:
        raise InputError(
            f"{{argument}} asks for the column {column!r}, found {', '.join(map(str, names))}",
            argument="ranking",
        )
    return list(values)


def _read_tiers(value: Any, row: int) -> list[list[Hashable]]:
    """[["a"], ["b"], ["c", "d"]] of "a > b > c, d"."""
    if isinstance(value, str):
        tiers: list[list[Hashable]] = [
            [name.strip() for name in tier.split(",")] for tier in value.split(">")
        ]
    elif hasattr(value, "__iter__"):
        nested = [list(one) if isinstance(one, (list, tuple, np.ndarray)) else [one] for one in value]
        tiers = [[name.strip() if isinstance(name, str) else name for name in tier] for tier in nested]
    else:
        raise ValueError(f"Row {row + 1:,} has no ranking: found {value!r}, expected a list or 'a > b > c'.")
    flat = [name for tier in tiers for name in tier]
    if (
        len(tiers) < 2
        or any(len(tier) != 1 for tier in tiers[:-1])
        or any(name in ("", None) or name != name for name in flat)
    ):
        raise ValueError(
            f"Row {row + 1:,} is not a ranking: found {value!r}, expected at least two items, best first; only the "
            "last place may hold several "
            "(those without an order)."
        )
    if len(set(flat)) < len(flat):
        raise ValueError(f"Row {row + 1:,} ranks an item twice: {value!r}.")
    return tiers
