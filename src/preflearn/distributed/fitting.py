"""The entry point: which estimator is trained in which way on partitions."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ..auto import AutoRanker
from ..learners.rankrls import RankRLS
from ..learners.ranksvm import RankSVM
from ..learners.rls import RLS
from ..learners.search import RankRLSCV
from .automatic import fit_automatic
from .pair_losses import fit_pair_losses
from .parts import Parts, read_parts
from .squared_losses import fit_squared_losses, search_squared_losses


def fit(estimator: Any, X: Any, y: Any = None, qid: Any = None, *, split_every: int = 8) -> Any:
    """Train an estimator on Dask collections; the result is that of training on one machine.

    Parameters
    ----------
    estimator : RankRLS, RankRLSCV, RLS, RankSVM or AutoRanker
        With the linear kernel or a reduced set (`n_basis` or `basis`). It is fitted in place.
    X : Dask array of shape (m, n) or data frame
        Features; a data frame may hold y and qid as columns.
    y : Dask array, series or frame, or str
        Scores, partitioned as X is, or the name of a column of X.
    qid : Dask array or series, or str, optional
        Query labels, given in the same way. Each partition must hold whole queries (`align_queries`); a query in two of
        them is refused. None is one global ranking (RankRLS) or regression (RLS).
    split_every : int, default=8
        Number of statistics that are added at a time in the tree.

    Returns
    -------
    estimator
        Fitted, with NumPy attributes.

    Notes
    -----
    Squared losses take one pass: each partition becomes an n × n statistic, summed in a tree, and one machine solves. A
    reduced set is drawn as in `fit`, from row numbers, in a separate pass before. RankRLSCV keeps one statistic per
    fold as in `RankRLSCV.fit_stream`, with the same folds and the same meaning of `cv` and `scoring`. RankSVM keeps the
    partitions in the memory of the workers and takes 10 to 60 evaluations; each sends n numbers to every partition and
    receives n.

    AutoRanker chooses on a sample of whole queries, as in `AutoRanker.fit_stream`, on the calling machine; sums for its
    kernels and binned features for its trees come from the partitions.

    Work goes to the current Dask scheduler: the one of the last ``distributed.Client``, or threads of this process.

    Examples
    --------
    >>> import dask.array as da, numpy as np
    >>> from preflearn import RankRLS
    >>> from preflearn.distributed import fit
    >>> rng = np.random.default_rng(0)
    >>> X, qid = rng.normal(size=(60, 3)), np.repeat(np.arange(6), 10)
    >>> y = X @ [1.0, -2.0, 0.5]
    >>> rows = {"chunks": 20}
    >>> model = fit(RankRLS(), da.from_array(X, chunks=(20, 3)), da.from_array(y, **rows), da.from_array(qid, **rows))
    >>> np.allclose(model.coef_, RankRLS().fit(X, y, qid=qid).coef_)
    True
    """
    trainers = {
        RankRLSCV: search_squared_losses,
        RankRLS: _fit_squared,
        RLS: _fit_squared,
        RankSVM: fit_pair_losses,
        AutoRanker: fit_automatic,
    }
    train = next((function for kind, function in trainers.items() if isinstance(estimator, kind)), None)
    if train is None:
        raise TypeError(
            f"distributed.fit trains RankRLS, RankRLSCV, RLS, RankSVM and AutoRanker: found {type(estimator).__name__}."
        )
    if isinstance(split_every, bool) or not isinstance(split_every, Integral) or split_every < 2:
        raise ValueError(f"split_every must be an int of at least 2: found {split_every!r}.")
    if isinstance(estimator, RLS) and qid is not None:
        raise ValueError("A regression does not compare rows, so qid would be ignored: leave it out.")
    parts = read_parts(X, y, qid)
    train(estimator, parts, int(split_every))
    _set_features(estimator, parts)
    return estimator


def _fit_squared(estimator: Any, parts: Parts, split_every: int) -> None:
    fit_squared_losses(estimator, parts, split_every)


def _set_features(estimator: Any, parts: Parts) -> None:
    if parts.feature_names is not None:
        estimator.feature_names_in_ = np.array(parts.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
