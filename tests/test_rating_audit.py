"""Defects planted in simulated boards are named, and sound boards are not accused."""

from __future__ import annotations

import numpy as np
import pytest

from preflearn import rate

COLUMNS = {"judge": "judge", "cluster": "prompt", "time": "day"}


def simulate(seed=0, n=10, battles=1500, judges=12, prompts=100):
    rng = np.random.default_rng(seed)
    f = rng.normal(size=n)
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    won = rng.random(battles) < 1 / (1 + np.exp(f[b] - f[a]))
    names = np.array([f"model {k}" for k in range(n)], dtype=object)
    return {
        "model_a": names[a], "model_b": names[b], "winner": np.where(won, "model_a", "model_b").astype(object),
        "judge": np.array([f"judge {k}" for k in rng.integers(judges, size=battles)], dtype=object),
        "prompt": rng.integers(prompts, size=battles), "day": 19000 + np.sort(rng.random(battles)) * 300,
    }, f  # fmt: skip


def chosen(table, rows):
    return {name: np.concatenate([values, values[rows]]) for name, values in table.items()}


def plant(defect, seed):
    table, f = simulate(seed)
    rng = np.random.default_rng(seed + 1000)
    a, b = (np.array([int(name[6:]) for name in table[side]]) for side in ("model_a", "model_b"))
    won, l = table["winner"] == "model_a", a.size
    if defect == "duplicate votes":
        return chosen(table, rng.permutation(l)[:40])
    if defect == "bot judge":
        bot = table["judge"] == "judge 3"
        table["winner"][bot] = np.where(rng.random(bot.sum()) < 0.5, "model_a", "model_b")
    elif defect == "position bias":
        won = rng.random(l) < 1 / (1 + np.exp(f[b] - f[a] - 0.5))
        table["winner"] = np.where(won, "model_a", "model_b").astype(object)
    elif defect == "self-preference":
        table["judge"] = np.array([f"model {k}" for k in rng.integers(10, size=l)], dtype=object)
        own = np.array([int(name[6:]) for name in table["judge"]])
        won = rng.random(l) < 1 / (1 + np.exp(f[b] - f[a] - 2.0 * ((own == a) * 1.0 - (own == b))))
        table["winner"] = np.where(won, "model_a", "model_b").astype(object)
    elif defect == "renamed model":
        for side in ("model_a", "model_b"):
            table[side][(table[side] == "model 4") & (table["day"] > 19150)] = "model 4 (new)"
    elif defect == "copied prompts":
        table["prompt"][rng.random(l) < 0.1] = 7
    elif defect == "cycle":
        up = (b - a) % 3 == 1
        some = (a < 3) & (b < 3)
        p = np.where(up, 0.85, 0.15)
        table["winner"][some] = np.where(rng.random(l) < p, "model_a", "model_b")[some]
    elif defect == "disconnected part":
        table = chosen(table, rng.permutation(l)[:60])
        table["model_a"][-60:], table["model_b"][-60:] = "far", "away"
        table["winner"][-60:] = np.where(rng.random(60) < 0.5, "model_a", "model_b")
    elif defect == "time leak":
        order = np.argsort(table["winner"] == "model_b", kind="stable")
        part = rng.random(l) < 0.3
        table["day"][np.sort(order[part[order]])] = table["day"][np.sort(order[part[order]])]
        late = part & (table["winner"] == "model_a")
        table["day"][late] = 19200 + 100 * rng.random(late.sum())
    return table


DEFECTS = [
    "duplicate votes", "bot judge", "position bias", "self-preference", "renamed model", "copied prompts", "cycle",
    "disconnected part", "time leak",
]  # fmt: skip


def found(table):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        board = rate(table, **COLUMNS, alpha=0.1)
        return board, {one for one, _, _ in board.findings}


@pytest.mark.parametrize("defect", DEFECTS)
def test_what_was_planted_is_named(defect):
    named = [defect in found(plant(defect, seed))[1] for seed in range(5)]
    assert np.mean(named) >= 0.8


def test_sound_boards_are_not_accused():
    accused = [found(simulate(seed)[0])[1] for seed in range(60)]
    assert np.mean([bool(one) for one in accused]) < 0.1, accused


def test_findings_are_on_the_board(capsys):
    board, names = found(plant("bot judge", 0))
    assert list(board.audit["defect"]) == [one for one, _, _ in board.findings] and "bot judge" in names
    assert "those of a bot: judge 3." in " ".join(board.to_dict()["notes"])
