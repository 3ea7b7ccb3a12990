"""The options of a training, in a module that loads nothing: the help of the command line reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class Learner(StrEnum):
    """Learning algorithms; "auto" tries rankers of different kinds and combines them."""

    auto = "auto"
    rankrls = "rankrls"
    rls = "rls"
    ranksvm = "ranksvm"


class KernelName(StrEnum):
    """Kernels; "auto" is RBF, or linear for sparse and very wide data."""

    auto = "auto"
    rbf = "rbf"
    linear = "linear"
    laplacian = "laplacian"
    poly = "poly"


@dataclass(frozen=True)
class TrainingOptions:
    """Options of :func:`preflearn.auto.training.train`; None lets the data decide.

    Attributes
    ----------
    learner : Learner
    kernel : KernelName
    gamma : float or None
        Kernel width; None for one over the median distance.
    degree : int or None
        Of the polynomial kernel.
    n_basis : int or None
        Basis vectors; None for the full kernel of up to 2,000 rows, and 500 beyond.
    alphas : "auto" or sequence of float
    within_queries : bool
        Standardise the features within each query.
    seed : int
        Random seed for basis vectors and folds.
    verbose : bool
        Report the progress of the search.
    time_limit : float or None
        Seconds that the candidates of "auto" may take.
    """

    learner: Learner = Learner.rankrls
    kernel: KernelName = KernelName.auto
    gamma: float | None = None
    degree: int | None = None
    n_basis: int | None = None
    alphas: str | Sequence[float] = "auto"
    within_queries: bool = False
    seed: int = 0
    verbose: bool = False
    time_limit: float | None = None

    @property
    def asks_for_a_kernel(self) -> bool:
        """Whether an option is given that only a learner with one kernel understands."""
        given = (self.gamma, self.degree, self.n_basis)
        return (
            self.kernel is not KernelName.auto
            or any(one is not None for one in given)
            or not isinstance(self.alphas, str)
            or self.within_queries
        )
