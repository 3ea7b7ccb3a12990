"""The options of `preflearn.rate`, a few values each, and what must come out of any combination of them.

`rated` gives the call and the facts behind it; `refusal` the words of the message where two options exclude each
other; `expected` the strengths and their covariance by the slow, obvious way (`oracles.rating_by_newton`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.metrics.pairwise import rbf_kernel

import oracles

from .pairwise import all_pairs

pa = pytest.importorskip("pyarrow")

ITEMS, BATTLES, JUDGES, PROMPTS = 6, 90, 12, 25
LONG = 1_200_000_000_000_000_000
NAMES: dict[str, list[Any]] = {
    "texts": ["GPT x", "b", "draw", "naïve", "tie", "2", "new", "left"],
    "long": [LONG + 3 * k for k in range(8)],
    "spaces": [" a1", "b1 ", "\tc1", "d1", " e1 ", "f1", "g1", "h1 "],
}

OPTIONS: dict[str, list[Any]] = {
    "columns": ["usual", "named", "winner and loser", "ranking"],
    "winners": ["sides", "items", "shares"],
    "frame": ["dict", "pandas", "nullable", "polars", "pyarrow"],
    "names": ["texts", "long", "spaces"],
    "ties": [False, True],
    "judge": [None, "judge"],
    "cluster": [None, False, "prompt"],
    "weight": [None, "count", "share"],
    "covariates": [(), ("size",), ("size", "position")],
    "time": [None, "day"],
    "half_life": [None, 40.0, "auto"],
    "anchor": [None, "mapping", "pair"],
    "alpha": [0.3, "auto", 0],
    "level": [0.95, 0.8],
    "features": [None, "linear", "rbf"],
    "item_offsets": [1.0, 0.4],
    "margin": [None, "goals"],
    "model of ties": ["half", "davidson", "auto"],
    "first_side": [False, True, "ground"],
    "tie_covariates": [(), ("tempo",)],
    "trusted": [None, 4, 6],
}


@dataclass
class Facts:
    """What the table says, as arrays."""

    items: list[Any]
    pairs: np.ndarray
    share: np.ndarray
    weight: np.ndarray
    judge: np.ndarray
    prompt: np.ndarray
    day: np.ndarray
    size: np.ndarray
    goals: np.ndarray
    rankings: list[list[int]]
    features: np.ndarray
    ground: np.ndarray
    tempo: np.ndarray


def facts(options: dict[str, Any]) -> Facts:
    rng = np.random.default_rng(7)
    f = 0.5 * rng.normal(size=ITEMS)
    a = rng.integers(ITEMS, size=BATTLES)
    b = (a + rng.integers(1, ITEMS, BATTLES)) % ITEMS
    size = rng.normal(size=BATTLES)
    goals = np.round(f[a] - f[b] + 0.6 * size + 1.5 * rng.normal(size=BATTLES), 2)
    goals[goals == 0] = 0.5
    ties = rng.random(BATTLES) < (0.15 if options["ties"] else 0.0)
    goals[ties] = 0.0
    share = 0.5 + 0.5 * np.sign(goals)
    rankings = [rng.permutation(ITEMS)[:4].tolist() for _ in range(BATTLES)]
    weight = {
        None: np.ones(BATTLES),
        "count": rng.integers(1, 4, BATTLES) * 1.0,
        "share": rng.random(BATTLES) + 0.2,
    }
    names = [name.strip() if isinstance(name, str) else name for name in NAMES[options["names"]]]
    if options["columns"] == "winner and loser":
        turned = share == 0.0
        a, b = np.where(turned, b, a), np.where(turned, a, b)
        size, goals, share = np.where(turned, -size, size), np.abs(goals), np.where(turned, 1.0, share)
    return Facts(
        names, np.stack([a, b], axis=1), share, weight[options["weight"]], rng.integers(JUDGES, size=BATTLES),
        rng.integers(PROMPTS, size=BATTLES), rng.integers(120, size=BATTLES) * 1.0, size, goals, rankings,
        rng.normal(size=(8, 2)), rng.random(BATTLES) < 0.7, rng.normal(size=BATTLES),
    )  # fmt: skip


def table_of(options: dict[str, Any], known: Facts) -> dict[str, list[Any]]:
    names = NAMES[options["names"]]
    one, two = ([names[k] for k in side] for side in known.pairs.T)
    table: dict[str, list[Any]] = {"day": known.day.tolist(), "size": known.size.tolist()}
    table |= {"ground": known.ground.tolist(), "tempo": known.tempo.tolist()}
    table |= {"count" if options["weight"] != "share" else "share": known.weight.tolist()}
    ids = LONG if options["names"] == "long" else 0
    table |= {"judge": (known.judge + ids).tolist(), "prompt": (known.prompt + ids).tolist()}
    if options["margin"]:
        table["goals"] = known.goals.tolist()
    if options["columns"] == "ranking":
        return table | {"order": [" > ".join(str(names[k]) for k in one) for one in known.rankings]}
    if options["columns"] == "winner and loser":
        return table | {"winner": one, "loser": two, "tie": (known.share == 0.5).tolist()}
    sides = ("model_a", "model_b") if options["columns"] == "usual" else ("one side", "other side")
    table |= {sides[0]: one, sides[1]: two}
    words: Any = {1.0: sides[0], 0.0: sides[1], 0.5: "equal"}
    winner: list[Any] = [words[y] for y in known.share]
    if options["winners"] == "shares":
        winner = known.share.tolist()
    elif options["winners"] == "items":
        tie: Any = "equal" if options["names"] != "long" else "tie"
        winner = [tie if y == 0.5 else x if y else z for x, z, y in zip(one, two, known.share)]
        winner = [str(name) for name in winner] if options["names"] == "long" else winner
    return table | {"winner" if options["columns"] == "usual" else "who": winner}


def framed(kind: str, table: dict[str, list[Any]]) -> Any:
    if kind == "dict":
        return table
    if kind in ("polars", "pyarrow"):
        return pl.DataFrame(table) if kind == "polars" else pa.table(table)
    frame = pd.DataFrame(table)
    return frame.convert_dtypes() if kind == "nullable" else frame


def rated(options: dict[str, Any]) -> tuple[Any, dict[str, Any], Facts]:
    """The table and the arguments of a call, and the facts."""
    known = facts(options)
    given: dict[str, Any] = {
        name: options[name]
        for name in (
            "judge",
            "cluster",
            "weight",
            "covariates",
            "time",
            "half_life",
            "alpha",
            "level",
            "margin",
            "first_side",
            "tie_covariates",
        )
    }
    given["ties"] = options["model of ties"]
    if options["trusted"]:
        ids = LONG if options["names"] == "long" else 0
        given["trusted"] = [k + ids for k in range(options["trusted"])]
    given["item_offsets"] = options["item_offsets"]
    if options["columns"] == "named":
        given |= {"a": "one side", "b": "other side", "winner": "who"}
    if options["columns"] == "ranking":
        given["ranking"] = "order"
    if options["features"]:
        table = {"item": NAMES[options["names"]], "p": known.features[:, 0], "q": known.features[:, 1]}
        given |= {"features": table, "kernel": "linear" if options["features"] == "linear" else "rbf"}
    if options["anchor"]:
        name = NAMES[options["names"]][1]
        name = str(name) if options["columns"] == "ranking" else name
        given["anchor"] = {name: 1300.0} if options["anchor"] == "mapping" else (name, 1300.0)
    return framed(options["frame"], table_of(options, known)), given, known


def refusal(options: dict[str, Any]) -> tuple[str, ...]:
    """Words that a message must have where options exclude each other."""
    ranked = options["columns"] == "ranking"
    if options["half_life"] is not None and options["time"] is None:
        return "half-life", "time"
    if options["tie_covariates"] and options["model of ties"] == "half":
        return "tie-covariates", "ties"
    for name in ("ranking", "margin"):
        if options["model of ties"] != "half" and (ranked if name == "ranking" else options[name]):
            return name, "ties"
    if options["first_side"] and "position" in options["covariates"]:
        return "first-side", "covariates"
    if options["trusted"]:
        if not options["judge"]:
            return "trusted", "judge"
        for name in ("margin", "covariates", "first_side", "weight"):
            if options[name]:
                return "trusted", name
        if options["model of ties"] != "half":
            return "trusted", "ties"
        if options["half_life"] is not None:
            return "trusted", "half-life"
        if ranked:
            return "trusted", "ranking"
        if options["alpha"] == 0:
            return "trusted", "alpha"
    for name in ("covariates", "cluster", "margin", "first_side", "features"):
        if ranked and options[name]:
            return name, "ranking"
    if options["columns"] == "winner and loser" and "position" in options["covariates"]:
        return "position", "loser"
    if options["columns"] == "winner and loser" and options["first_side"]:
        return "first-side", "loser"
    if options["features"] and options["alpha"] == 0:
        return "features", "alpha"
    if not options["features"] and options["item_offsets"] != 1.0:
        return "item_offsets", "features"
    return ()


def accepted() -> list[dict[str, Any]]:
    """Every two values that do not exclude each other also meet where nothing is refused."""
    few: dict[str, Any] = {
        name: values for name, values in OPTIONS.items() if name not in ("columns", "features", "margin")
    }
    few["time"] = ["day"]
    rows: list[dict[str, Any]] = []
    models = [
        ("usual", None, None, "half"),
        ("winner and loser", None, "goals", "half"),
        ("named", "linear", None, "half"),
        ("named", "rbf", "goals", "half"),
        ("ranking", None, None, "half"),
        ("usual", None, None, "davidson"),
        ("named", "linear", None, "auto"),
        ("winner and loser", None, None, "davidson"),
    ]
    for number, (columns, features, margin, ties) in enumerate(models):
        own: dict[str, Any] = {
            **few, "covariates": [(), ("size",)], "model of ties": [ties], "trusted": [None],
        }  # fmt: skip
        if ties == "half":
            own["tie_covariates"] = [()]
        if columns in ("usual", "named") and ties == "half":
            own |= {"covariates": few["covariates"], "first_side": [False]}
        if columns in ("winner and loser", "ranking"):
            own["first_side"] = [False]
        if features is None:
            own["item_offsets"] = [1.0]
        else:
            own["alpha"] = [0.3, "auto"]
        if columns == "ranking":
            own |= {"covariates": [()], "cluster": [None, False]}
        rest = {"columns": columns, "features": features, "margin": margin}
        rows += [{**row, **rest} for row in all_pairs(own, seed=number)]
    fixed = {
        "covariates": [()], "weight": [None], "half_life": [None], "first_side": [False], "tie_covariates": [()],
        "model of ties": ["half"], "judge": ["judge"], "alpha": [0.3, "auto"], "margin": [None],
        "trusted": [4, 6], "columns": ["usual", "named", "winner and loser"], "features": [None],
        "item_offsets": [1.0],
    }  # fmt: skip
    rows += all_pairs({**few, **fixed}, seed=9)
    fixed |= {"features": ["linear", "rbf"], "item_offsets": [1.0, 0.4]}
    return rows + all_pairs({**few, **fixed}, seed=10)


def _prior(options: dict[str, Any], known: Facts, order: list[int], alpha: float) -> np.ndarray:
    """2 alpha times the inverse of the prior covariance of the items, in this order."""
    if not options["features"]:
        return 2.0 * alpha * np.eye(len(order))
    F = known.features[order]
    F = (F - F.mean(axis=0)) / F.std(axis=0)
    K = F @ F.T if options["features"] == "linear" else rbf_kernel(F)
    K = K / np.mean(np.diagonal(K)) + options["item_offsets"] * np.eye(len(order))
    return 2.0 * alpha * np.linalg.inv(K)


def expected(options: dict[str, Any], known: Facts, found: Any) -> dict[str, Any]:
    """Strengths, coefficients, their covariance and effective clusters, at the alpha and half-life that were chosen."""
    names = [str(name) for name in known.items] if options["columns"] == "ranking" else known.items
    order = [names.index(item) for item in found.items]
    place = {item: k for k, item in enumerate(order)}
    alpha = max(found.alpha, 1e-10)
    P = _prior(options, known, order, alpha)
    weight = known.weight
    if found.half_life is not None:
        weight = weight * 0.5 ** ((known.day.max() - known.day) / found.half_life)
    cluster = known.judge if options["judge"] else None
    if options["cluster"] is not None:
        cluster = known.prompt if options["cluster"] else None
    if options["columns"] == "ranking":
        rankings = [[place[k] for k in one] for one in known.rankings]
        return oracles.ranking_by_newton(rankings, weight, P, cluster)
    pairs = [(place[a], place[b]) for a, b in known.pairs.tolist()]
    if options["trusted"]:
        trusted = known.judge < options["trusted"]
        own = known.prompt[trusted] if options["cluster"] else None
        return oracles.trusted_by_newton(pairs, known.share, known.prompt, trusted, P, own, len(order))
    effects = [known.size if name == "size" else np.ones(BATTLES) for name in options["covariates"]]
    widths = [4.0] * len(effects)
    if options["first_side"]:
        effects.insert(0, known.ground * 1.0 if options["first_side"] == "ground" else np.ones(BATTLES))
        widths.insert(0, 1000.0)
    Z = np.stack(effects or [[]], axis=-1)
    X = oracles.rating_design(len(order), pairs, Z if effects else None)
    spread = np.sqrt(np.average(np.square(Z), axis=0, weights=weight)) if effects else np.empty(0)
    whole = np.zeros((X.shape[1],) * 2)
    whole[: len(order), : len(order)] = P
    # The effect of a typical difference may be four times as large as a strength.
    whole[range(len(order), X.shape[1]), range(len(order), X.shape[1])] = 2.0 * alpha * (spread / widths) ** 2
    if found.raw.ties == "davidson" and (known.share == 0.5).any():
        tempo = known.tempo[:, None][:, : len(options["tie_covariates"])]
        U = np.hstack([np.ones((BATTLES, 1)), tempo])
        typical = np.sqrt(np.average(np.square(tempo), axis=0, weights=weight))
        Q = np.diag(2.0 * alpha * np.r_[1e-6, (typical / 4.0) ** 2])
        return oracles.davidson_by_newton(X, U, known.share, weight, whole, Q, cluster, len(order))
    margin = known.goals if options["margin"] else None
    return oracles.rating_by_newton(X, known.share, weight, whole, cluster, len(order), margin)
