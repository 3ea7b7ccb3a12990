"""The entry point: which estimator is trained in which way on partitions."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np

from ..auto import AutoRanker
from ..auto.sample import Kept, QuerySample, read_chunk
from ..learners.rankrls import RankRLS
from ..learners.ranksvm import RankSVM
from ..learners.rls import RLS
from ..learners.search import RankRLSCV
from .pair_losses import fit_pair_losses
from .parts import Parts, as_plain, in_part, read_parts, require_dask
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

    AutoRanker is trained on the calling machine: as in `AutoRanker.fit_stream`, up to 2,000,000 rows of whole queries
    come from the partitions.

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
        AutoRanker: _fit_automatic,
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


def _fit_automatic(model: AutoRanker, parts: Parts, split_every: int) -> None:
    """Every partition sends the queries that may be kept."""
    if parts.qid is None:
        raise ValueError(
            "AutoRanker on partitions samples whole queries, and there is no qid: pass it, or train RankRLSCV, which "
            "accepts a global ranking in parts."
        )
    dask, sample = require_dask(), QuerySample()
    calls = [dask.delayed(_sample)(number, *one) for number, one in enumerate(parts.triples())]
    for first in range(0, len(calls), split_every):
        for one in dask.compute(*calls[first : first + split_every]):
            sample.merge(one)
    model._fit_kept(Kept.of(sample))


def _sample(number: int, X: Any, y: Any, qid: Any) -> QuerySample:
    found = QuerySample()
    # The encoder reads a data frame with columns that are not numbers.
    is_table = hasattr(X, "columns") and any(one.kind not in "fiub" for one in X.dtypes)
    X, y, qid = X if is_table else as_plain(X), as_plain(y), as_plain(qid)
    if X.shape[0]:
        try:
            found.add(*read_chunk(X, y, qid))
        except (TypeError, ValueError) as error:
            raise in_part(number, error) from error
        found.shrink()
    return found


def _set_features(estimator: Any, parts: Parts) -> None:
    if parts.feature_names is not None:
        estimator.feature_names_in_ = np.array(parts.feature_names, dtype=object)
    elif hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
