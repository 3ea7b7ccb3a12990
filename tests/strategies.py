"""Random problems for hypothesis: shapes, ties, one-item queries, duplicate rows, scales."""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st


def examples(n: int) -> settings:
    """Try n random problems; half of them in continuous integration, where they are the same ones each time."""
    return settings(max_examples=max(15, n // 2) if os.environ.get("CI") else n)


@dataclass
class Problem:
    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray


@st.composite
def ranking_problems(draw, min_rows=2, max_rows=24, max_features=6, comparable=True):
    """Scores inside queries; with ``comparable`` at least one untied pair lies inside a query."""
    m = draw(st.integers(min_rows, max_rows))
    n = draw(st.integers(1, max_features))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    X = rng.normal(size=(m, n)) * draw(st.sampled_from([1.0, 1e-2, 30.0]))
    if draw(st.booleans()):
        X[rng.integers(m)] = X[rng.integers(m)]  # a duplicate row
    y = rng.normal(size=m) * draw(st.sampled_from([1.0, 100.0]))
    if draw(st.booleans()):
        y = rng.integers(0, 3, size=m).astype(float)  # ties
    qid = rng.integers(0, draw(st.integers(1, max(1, m // 2))), size=m)
    if comparable:
        qid[:2] = 0
        y[0], y[1] = 1.5, 0.5
    order = rng.permutation(m)
    return Problem(X[order], y[order], qid[order])
