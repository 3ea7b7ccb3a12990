"""The embedded data: the same every time, and hard in the way it says."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn.datasets import load_demo


def test_shapes_and_ranges() -> None:
    X, y, qid, feature_names = load_demo()
    assert X.shape == (y.shape[0], 8) and qid.shape == y.shape
    assert len(feature_names) == len(set(feature_names)) == 8
    assert np.isfinite(X).all()
    assert set(np.unique(y)) == {0, 1, 2, 3, 4}
    queries, counts = np.unique(qid, return_counts=True)
    assert queries.shape == (60,)
    assert counts.min() >= 9 and counts.max() <= 15


def test_the_seed_decides() -> None:
    first, again, other = load_demo(), load_demo(random_state=0), load_demo(random_state=1)
    assert all(np.array_equal(a, b) for a, b in zip(first, again, strict=True))
    assert not np.array_equal(first.X, other.X)


def test_no_query_is_all_ties() -> None:
    _, y, qid, _ = load_demo()
    assert all(np.ptp(y[qid == query]) > 0 for query in np.unique(qid))


@pytest.mark.parametrize("seed", range(3))
def test_the_mood_of_the_judges_hides_an_effect(seed: int) -> None:
    """A good title helps clearly within a query, and hardly over all rows together."""
    X, y, qid, feature_names = load_demo(random_state=seed)
    title = X[:, feature_names.index("title_match")]
    codes = np.unique(qid, return_inverse=True)[1]
    counts = np.bincount(codes)

    def centred(values: np.ndarray) -> np.ndarray:
        return values - (np.bincount(codes, values) / counts)[codes]

    pooled = np.corrcoef(title, y)[0, 1]
    within = np.corrcoef(centred(title), centred(y))[0, 1]
    assert within > 0.2
    assert pooled < within / 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"n_queries": 0}, "n_queries must be between 1 and 60: found 0"),
        ({"n_queries": 61}, "n_queries must be between 1 and 60: found 61"),
        ({"items": 1}, "items must be at least 2"),
    ],
)
def test_refusals(arguments: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_demo(**arguments)


def test_smallest_sizes() -> None:
    X, y, qid, _ = load_demo(n_queries=1, items=2)
    assert len(set(qid)) == 1 and 2 <= X.shape[0] <= 5 and y.shape == qid.shape
