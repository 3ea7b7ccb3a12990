"""Leaderboards: football with ties, ranks from tables of scores, trusted judges, fragility, choices.

    football    matches since 2018, month by month: Davidson's model with a home advantage against Elo (K and home
                advantage tuned on 2014 to 2017) with a draw curve fitted on the 20 years before each year
    ranks       share of boards from tables of scores on which all rank intervals held; items are equal
    trusted     coverage and width of intervals with 400 trusted judgements and 6,000 cheap ones
    fragility   seconds for 1,000,000 battles of 200 items
    choices     BradleyTerry on choices of train journeys against the conditional logit that R's mlogit publishes; the
                rankings of `rate` on modes of fishing against the logarithms of their shares

    python benchmarks/leaderboards.py [PART ...] [--quick]

Data: football_international and choices in the folder that PREFLEARN_DATA names.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from typing import Any

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from _harness import RESULTS, data_folder, write_results
from preflearn import BradleyTerry, leaderboard, rate
from preflearn.ratings.ties import outcome_probabilities

# Chosen by predicting 2016 and 2017.
HALF_LIFE, ALPHA = 1500.0, 0.05
# R's mlogit, vignette "Random utility model and the multinomial logit model": choice ~ price + time + change + comfort.
MLOGIT = {"price": -0.0673580, "time": -1.7205514, "change": -0.3263409, "comfort": -0.9457256}


def _matches() -> pd.DataFrame:
    folder = data_folder("football_international")
    if folder is None:
        raise SystemExit("football_international is not in the folder that PREFLEARN_DATA names")
    d = pd.read_csv(folder / "results.csv.xz").dropna(subset=["home_score"])
    d["date"] = pd.to_datetime(d["date"])
    d = d.sort_values("date", kind="stable").reset_index(drop=True)
    d["outcome"] = 1 - np.sign(d["home_score"] - d["away_score"]).astype(int)
    d["winner"] = np.array(["home_team", "tie", "away_team"])[d["outcome"]]
    d["ground"] = ~d["neutral"].astype(bool)
    return d


def _elo(d: pd.DataFrame, k: float, home: float) -> np.ndarray:
    """Differences of ratings just before each match."""
    teams = pd.unique(pd.concat([d["home_team"], d["away_team"]]))
    place = {team: number for number, team in enumerate(teams)}
    a, b = (d[side].map(place).to_numpy() for side in ("home_team", "away_team"))
    y, ground = 1.0 - d["outcome"].to_numpy() / 2.0, d["ground"].to_numpy() * home
    ratings, out = np.zeros(len(teams)), np.empty(len(d))
    for row in range(len(d)):
        out[row] = ratings[a[row]] - ratings[b[row]] + ground[row]
        change = k * (y[row] - 1.0 / (1.0 + 10.0 ** (-out[row] / 400.0)))
        ratings[a[row]] += change
        ratings[b[row]] -= change
    return out


def _elo_outcomes(d: pd.DataFrame, k: float, home: float, years: range) -> tuple[np.ndarray, np.ndarray]:
    """Three outcomes by a curve in the difference, refitted every year."""
    difference, year, outcome = _elo(d, k, home), d["date"].dt.year.to_numpy(), d["outcome"].to_numpy()
    parts = []
    for one in years:
        past, test = (year < one) & (year >= one - 20), year == one

        def curve(p: np.ndarray, x: np.ndarray) -> np.ndarray:
            return outcome_probabilities(p[0] * x + p[3], p[1] + p[2] * np.abs(x))

        def loss(p: np.ndarray, x: np.ndarray = difference[past], y: np.ndarray = outcome[past]) -> float:
            return float(-np.log(curve(p, x)[np.arange(y.size), y]).mean())

        fit = minimize(loss, [0.006, 0.0, 0.0, 0.0], method="Nelder-Mead", options={"maxiter": 2000}).x
        parts.append(curve(fit, difference[test]))
    return np.concatenate(parts), outcome[np.isin(year, list(years))]


def _figures(P: np.ndarray, outcome: np.ndarray) -> dict[str, Any]:
    came = np.bincount(outcome, minlength=3) / outcome.size
    return {
        "log loss": float(-np.log(P[np.arange(outcome.size), outcome]).mean()),
        "predicted home, draw, away": P.mean(axis=0).tolist(),
        "observed": came.tolist(),
        "largest miss": float(np.abs(P.mean(axis=0) - came).max()),
        "matches": int(outcome.size),
    }


def football(quick: bool) -> dict[str, Any]:
    d = _matches()
    tuned = {}
    for k in (32.0, 45.0, 60.0):
        for home in (50.0, 80.0, 100.0):
            tuned[k, home] = _figures(*_elo_outcomes(d, k, home, range(2014, 2018)))["log loss"]
    k, home = min(tuned, key=tuned.get)
    last = 2019 if quick else int(d["date"].dt.year.max()) + 1
    parts, outcomes = [], []
    for month in pd.period_range("2018-01", f"{last - 1}-12", freq="M"):
        start = month.start_time
        past = d[(d["date"] < start) & (d["date"] > start - pd.Timedelta(days=10 * HALF_LIFE))]
        test = d[(d["date"] >= start) & (d["date"] <= month.end_time)]
        if not len(test):
            continue
        found = rate(
            past, a="home_team", b="away_team", winner="winner", time="date", half_life=HALF_LIFE, alpha=ALPHA,
            ties="davidson", first_side="ground",
        )  # fmt: skip
        parts.append(found.predict_outcomes(test))
        outcomes.append(test["outcome"].to_numpy())
    ours = _figures(np.concatenate(parts), np.concatenate(outcomes))
    plain, best = (
        _figures(*_elo_outcomes(d, *setting, range(2018, last))) for setting in ((32.0, 0.0), (k, home))
    )
    return {
        "Davidson": ours, "Elo, K = 32": plain, f"Elo tuned, K = {k:g}, home {home:g}": best,
        "gain over Elo, K = 32": plain["log loss"] - ours["log loss"],
        "gain over tuned Elo": best["log loss"] - ours["log loss"],
    }  # fmt: skip


def _scores(rng: np.random.Generator, n: int, t: int, kind: str) -> np.ndarray:
    """Equal items on tasks that differ in difficulty."""
    S = rng.standard_t(3, size=(n, t)) if kind == "heavy tails" else rng.normal(size=(n, t))
    if kind == "correlated tasks":
        S = S + 2.0 * rng.normal(size=(n, 2)) @ rng.normal(size=(2, t))
    S = S + 3.0 * rng.normal(size=t)
    if kind == "missing":
        S[:, 2:][rng.random((n, t - 2)) < 0.2] = np.nan
    return S


def score_ranks(quick: bool) -> dict[str, float]:
    sets, out = 20 if quick else 500, {}
    for kind in ("normal", "correlated tasks", "heavy tails", "missing"):
        for n, t in ((3, 5), (3, 100), (10, 5), (10, 20), (10, 100), (50, 5), (50, 20), (50, 100)):
            rng = np.random.default_rng(n * 1000 + t)
            held = 0
            for _ in range(sets):
                S = _scores(rng, n, t, kind)
                frame = {"model": [f"m{k}" for k in range(n)], **{f"t{k}": S[:, k] for k in range(t)}}
                held += not leaderboard(frame).apart.any()
            out[f"{kind}, {n} models, {t} tasks"] = held / sets
    return out


def _judged(seed: int, luck: float, n: int = 10) -> tuple[pd.DataFrame, np.ndarray]:
    """6,000 judgements by a model with tastes of its own, 400 of the same battles also by people."""
    rng = np.random.default_rng(seed)
    f, taste = 0.6 * rng.normal(size=n), 0.6 * rng.normal(size=n)
    a = rng.integers(n, size=6000)
    b = (a + rng.integers(1, n, 6000)) % n
    u = rng.random(6000)
    people = u < 1 / (1 + np.exp(f[b] - f[a]))
    seen = np.where(rng.random(6000) < luck, u, rng.random(6000))
    model = seen < 1 / (1 + np.exp((f + taste)[b] - (f + taste)[a]))
    both = rng.permutation(6000)[:400]
    rows = np.concatenate([np.arange(6000), both])
    won = np.concatenate([model, people[both]])
    names = np.array([f"m{k}" for k in range(n)])
    table = {
        "model_a": names[a[rows]],
        "model_b": names[b[rows]],
        "winner": np.where(won, "model_a", "model_b"),
    }
    return pd.DataFrame({**table, "prompt": rows, "judge": ["gpt"] * 6000 + ["ann"] * 400}), f - f.mean()


def trusted(quick: bool) -> dict[str, Any]:
    out = {}
    for luck in (0.8, 0.4, 0.0):
        held, alone_held, ratio, worth = [], [], [], []
        for seed in range(10 if quick else 150):
            table, f = _judged(seed, luck)
            helped = rate(table, judge="judge", trusted=["ann"], alpha=1 / 32)
            alone = rate(table[table["judge"] == "ann"], alpha=1 / 32)
            for board, inside in ((helped, held), (alone, alone_held)):
                inside.append(np.abs(board.strengths.scores - f) < 1.96 * board.standard_errors)
            ratio.append(helped.standard_errors / alone.standard_errors)
            worth.append(helped.trusted.worth)
        out[f"{100 * luck:.0f} % seen alike"] = {
            "coverage": np.mean(held), "coverage alone": np.mean(alone_held), "width": np.mean(ratio),
            "widest": np.max(ratio), "worth": np.mean(worth),
        }  # fmt: skip
    return out


def fragility(quick: bool) -> dict[str, float]:
    rng = np.random.default_rng(0)
    n, battles = 200, 10_000 if quick else 1_000_000
    f = 0.3 * rng.normal(size=n)
    a = rng.integers(n, size=battles)
    b = (a + rng.integers(1, n, battles)) % n
    won = rng.random(battles) < 1 / (1 + np.exp(f[b] - f[a]))
    found = rate({"a": a, "b": b, "winner": np.where(won, "a", "b")}, alpha=0.1)
    start = time.perf_counter()
    removed = found.fragility().n_battles
    return {"battles": battles, "removed": removed, "seconds": time.perf_counter() - start}


def choices(quick: bool) -> dict[str, Any]:
    folder = data_folder("choices")
    if folder is None:
        raise SystemExit("choices is not in the folder that PREFLEARN_DATA names")
    d = pd.read_csv(folder / "Train.csv.xz")
    X = np.concatenate(
        [
            np.column_stack(
                [d[f"price{k}"] / 100 * 2.20371, d[f"time{k}"] / 60, d[f"change{k}"], d[f"comfort{k}"]]
            )
            for k in (1, 2)
        ]
    )
    first = np.where(d["choice"] == "choice1", 0, 1)
    rows = np.arange(len(d))
    pairs = np.column_stack([rows + len(d) * first, rows + len(d) * (1 - first)])
    found = BradleyTerry(alpha=1e-8).fit_pairs(X, pairs).coef_
    fishing = pd.read_csv(folder / "Fishing.csv.xz")
    modes = sorted(fishing["mode"].unique())
    rankings = {
        "order": [f"{mode} > {', '.join(one for one in modes if one != mode)}" for mode in fishing["mode"]]
    }
    scores = rate(rankings, ranking="order", alpha=0).scores
    shares = np.log(fishing["mode"].value_counts())
    return {
        "preflearn": dict(zip(MLOGIT, found.tolist(), strict=True)),
        "mlogit": MLOGIT,
        "largest difference": max(abs(a - b) for a, b in zip(found, MLOGIT.values(), strict=True)),
        "rankings, largest difference": max(
            abs(scores[mode] - (shares - shares.mean())[mode]) for mode in modes
        ),
    }


PARTS = {
    "choices": choices, "fragility": fragility, "football": football, "trusted": trusted, "ranks": score_ranks,
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", UserWarning)
    path = RESULTS / "leaderboards.json"
    results = json.loads(path.read_text())["results"] if path.exists() else []
    found = {one["part"]: one for one in results}
    for name in given.parts or PARTS:
        found[name] = {"part": name, "found": json.loads(json.dumps(PARTS[name](given.quick), default=float))}
        print(name, json.dumps(found[name]["found"], indent=2), flush=True)
        if not given.quick:
            write_results("leaderboards", *found.values())


if __name__ == "__main__":
    main()
