r"""Search results of a fictitious shop, graded by fictitious judges.

Item i of query q has features :math:`x_i` and a usefulness :math:`u(x_i)` that is the same function in all
queries, but neither linear nor monotone: the best price is a little under the usual one, delivery matters until
it takes too long, discounts on badly rated items help nobody. Judges grade on a curve,

.. math:: y_i = \mathrm{round}(u(x_i) + c_q + \varepsilon_i), \qquad y_i \in \{0, \dots, 4\},

and are kinder (:math:`c_q` is higher) where the shop has little to offer: for rare queries, whose items match the
words badly. A regression on all rows together takes the mood of the judges for an effect of the features; a
learner that compares items within their query does not see :math:`c_q` at all.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

_ADJECTIVES = ("red", "wool", "kids", "light", "winter", "cheap")
_GOODS = ("jacket", "running shoes", "desk lamp", "backpack", "tea pot", "headphones", "blanket", "bike light",
          "notebook", "frying pan")  # fmt: skip

FEATURES = (
    "title_match",  # share of the query's words in the title, 0..1
    "text_match",  # the same for the description, 0..1
    "price_ratio",  # price divided by the usual price of such goods
    "rating",  # mean of the customers' stars, 1..5
    "reviews",  # log10 of 1 + their number
    "delivery_days",
    "discount",  # 0..0.6
    "age_months",  # since the item was listed
)


class DemoData(NamedTuple):
    """Rows of features, grades, queries and the names of the columns.

    Attributes
    ----------
    X : ndarray of shape (m, 8)
    y : ndarray of shape (m,)
        Grades 0 (useless) to 4 (just right).
    qid : ndarray of shape (m,), str
        What was searched for.
    feature_names : tuple of str
    """

    X: np.ndarray
    y: np.ndarray
    qid: np.ndarray
    feature_names: tuple[str, ...]


def load_demo(*, n_queries: int = 60, items: int = 12, random_state: int = 0) -> DemoData:
    """Search results of a fictitious shop: 8 features, grades 0 to 4, ``n_queries`` × about ``items`` rows.

    Parameters
    ----------
    n_queries : int, default=60
        At most 60, the number of different queries that the shop knows.
    items : int, default=12
        Mean number of items of a query; each has between ``items - 3`` and ``items + 3``, at least 2.
    random_state : int, default=0
        The same number gives the same data everywhere.

    Returns
    -------
    DemoData
        Named tuple ``(X, y, qid, feature_names)``.

    Raises
    ------
    ValueError
        If a size is out of range.

    Notes
    -----
    Made by the program, not measured: use it to see how things work, not to compare methods. O(m).

    Examples
    --------
    >>> X, y, qid, feature_names = load_demo()
    >>> X.shape, len(set(qid)), feature_names[:3]
    ((719, 8), 60, ('title_match', 'text_match', 'price_ratio'))
    """
    queries = [f"{adjective} {good}" for good in _GOODS for adjective in _ADJECTIVES]
    if not 1 <= n_queries <= len(queries):
        raise ValueError(f"n_queries must be between 1 and {len(queries)}: found {n_queries}.")
    if items < 2:
        raise ValueError(f"items must be at least 2, or there is nothing to compare: found {items}.")
    rng = np.random.default_rng(random_state)
    counts = rng.integers(max(items - 3, 2), items + 4, size=n_queries)
    query = np.repeat(np.arange(n_queries), counts)
    rarity = rng.uniform(size=n_queries)
    X = _items(rng, rarity[query])
    curve = 2.6 * (rarity - 0.5) + 0.3 * rng.standard_normal(n_queries)
    noise = 0.35 * rng.standard_normal(query.shape[0])
    usefulness = _usefulness(X)
    y = np.clip(np.rint(1.9 + usefulness + curve[query] + noise), 0, 4) + 0.0  # of -0.0 makes 0.0
    chosen = rng.permutation(len(queries))[:n_queries]
    return DemoData(X, y, np.array(queries)[chosen][query], FEATURES)


def _items(rng: np.random.Generator, rarity: np.ndarray) -> np.ndarray:
    """Features of items found for queries of the given rarity, shape (m, 8), rounded as a shop would show them."""
    m = rarity.shape[0]
    title = np.clip(0.85 - 0.6 * rarity + 0.16 * rng.standard_normal(m), 0, 1)
    columns = (
        title,
        np.clip(title + 0.2 * rng.standard_normal(m), 0, 1),
        np.exp(0.4 * rng.standard_normal(m) + 0.2 * (rarity - 0.5)),
        np.clip(3.9 + 0.7 * rng.standard_normal(m), 1, 5),
        np.log10(1 + rng.lognormal(3.5 - 1.5 * rarity, 1.2)),
        rng.integers(1, 11, size=m).astype(float),
        np.where(rng.uniform(size=m) < 0.4, rng.uniform(0.05, 0.6, size=m), 0.0),
        rng.integers(0, 60, size=m).astype(float),
    )
    return np.round(np.column_stack(columns), 2)


def _usefulness(X: np.ndarray) -> np.ndarray:
    """u(x), shape (m,): what a customer makes of an item, about 0 on average."""
    title, text, price, rating, reviews, days, discount, age = X.T
    trust = 1 / (1 + np.exp(-4 * (reviews - 1.0)))
    return (
        1.6 * (title - 0.55)
        + 0.5 * (text - 0.55)
        + 2.6 * np.exp(-(((price - 0.9) / 0.25) ** 2))
        - 1.2
        + 0.7 * trust * (rating - 3.9)
        + 0.8 / (1 + np.exp(1.5 * (days - 5)))
        - 0.4
        + 1.5 * discount * np.tanh(2 * (rating - 3.7))
        - 0.004 * age
    )
