"""Ratings: same scores as other packages, how quickly, and do intervals hold?

Parts, each of them an entry of benchmarks/results/ratings.json:

* ``peers``: the largest difference of maximum-likelihood strengths from evalica, arena-rank and choix on LLMFAO, and
  seconds. The peers may live in an environment of their own: ``--peers PYTHON`` names its interpreter.
* ``coverage``: intervals of ratings, and of all ranks together, on simulated battles, some of them of equal items; with
  judges whose tastes differ, the sandwich beside standard errors of the model.
* ``held_out``: log loss of held-out battles with alpha chosen without each fold, and with the alpha of all battles.
* ``ranks``: coverage of ranks on boards of 1,100 items, where those of the best are drawn from the posterior.
* ``planning``: battles until the top 5 are settled, chosen by `next_battles` and at random.
* ``covariates``: a million battles of 200 items, 5 covariates, 10,000 judges, beside a logistic regression.
* ``matches``: 900,000 tennis matches: CPU seconds of ratings, intervals and ranks, and peak of memory.
* ``tennis``: log loss of tour matches of 2023, month by month from the past, by one board and by boards for surfaces.
  Half-life, shrinkage and how far surfaces differ are chosen by 2019, 2021 and 2022, and so is whether there are boards
  for surfaces; then 2023 is predicted. Data: Jeff Sackmann, Tennis Abstract (CC BY-NC-SA 4.0).

Real data are looked for in the folder that PREFLEARN_DATA names.

    python benchmarks/ratings.py [--quick] [--peers PYTHON] [PART ...]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from _harness import RESULTS, peak_memory, write_results
from preflearn import rate
from preflearn.metrics import calibration_of_preferences
from preflearn.ratings import planning, ranks
from preflearn.ratings.battles import Battles
from preflearn.ratings.strengths import dense_covariance, fit_strengths

DATA = Path(os.environ.get("PREFLEARN_DATA", "data"))
POINTS = 400 / np.log(10)
PEERS = """
import json, sys, time
import numpy as np
table = json.load(open(sys.argv[1]))
n, pairs, share = table["n"], np.array(table["pairs"]), np.array(table["share"])
found = {}
def told(name, scores, seconds):
    scores = np.asarray(scores, dtype=float)
    found[name] = {"scores": (scores - scores.mean()).tolist(), "seconds": seconds}
try:
    import evalica
    names = {1.0: evalica.Winner.X, 0.0: evalica.Winner.Y, 0.5: evalica.Winner.Draw}
    x, y = [str(k) for k in pairs[:, 0]], [str(k) for k in pairs[:, 1]]
    start = time.perf_counter()
    result = evalica.bradley_terry(x, y, [names[s] for s in share], tolerance=1e-14, limit=100000)
    seconds = time.perf_counter() - start
    told("evalica", np.log([result.scores[str(k)] for k in range(n)]), seconds)
except ImportError:
    pass
try:
    import pandas as pd
    from arena_rank.models.bradley_terry import BradleyTerry
    from arena_rank.utils.data_utils import PairDataset
    frame = pd.DataFrame({"model_a": pairs[:, 0].astype(str), "model_b": pairs[:, 1].astype(str),
                          "winner": [{1.0: "model_a", 0.0: "model_b", 0.5: "tie"}[s] for s in share]})
    start = time.perf_counter()
    data = PairDataset.from_pandas(frame)
    model = BradleyTerry(n_competitors=len(data.competitors), ftol=1e-16, gtol=1e-14, max_iter=10000)
    result = model.compute_ratings_and_cis(data)
    seconds = time.perf_counter() - start
    by_name = dict(zip(result["competitors"], np.asarray(result["ratings"]) * np.log(10) / 400))
    told("arena-rank", [by_name[str(k)] for k in range(n)], seconds)
except ImportError:
    pass
try:
    import choix
    decided = share != 0.5
    won = np.where((share == 1.0)[:, None], pairs, pairs[:, ::-1])
    both = np.concatenate([won[decided], won[decided], pairs[~decided], pairs[~decided][:, ::-1]])
    start = time.perf_counter()
    scores = choix.opt_pairwise(n, [tuple(map(int, pair)) for pair in both], alpha=1e-9, tol=1e-12)
    told("choix", scores, time.perf_counter() - start)
except ImportError:
    pass
print(json.dumps(found))
"""


def llmfao() -> pd.DataFrame:
    """Battles of language models, judged by people."""
    return pd.read_csv(DATA / "llmfao" / "llmfao.csv.xz")


def matches(columns: list[str]) -> pd.DataFrame:
    """Tennis matches."""
    return pd.read_csv(DATA / "tennis_atp" / "matches.csv.xz", usecols=columns)


def compare_peers(python: str) -> dict[str, Any]:
    """Largest difference of the strengths, and seconds."""
    frame = llmfao()
    start = time.perf_counter()
    ours = rate(frame, a="left", b="right", alpha=0)
    board = ours.columns
    seconds = time.perf_counter() - start
    path = Path(os.environ.get("TMPDIR", "/tmp")) / f"ratings-{os.getpid()}.json"
    table = {"n": len(ours.items), "pairs": ours.raw.pairs.tolist(), "share": ours.raw.share.tolist()}
    path.write_text(json.dumps(table))
    try:
        done = subprocess.run([python, "-c", PEERS, str(path)], capture_output=True, text=True, check=True)
    finally:
        path.unlink()
    found = json.loads(done.stdout.strip().splitlines()[-1])
    out: dict[str, Any] = {"preflearn, board with ranks": {"seconds": seconds, "items": len(board["item"])}}
    for name, one in found.items():
        difference = float(np.abs(np.array(one["scores"]) - ours.strengths.scores).max())
        out[name] = {"largest difference": difference, "seconds": one["seconds"]}
    return out


def simulated(n: int, per_item: int, seed: int, spread: float) -> tuple[dict[str, Any], np.ndarray]:
    """Battles and true strengths."""
    rng = np.random.default_rng(seed)
    f = spread * rng.normal(size=n)
    a = rng.integers(0, n, n * per_item // 2)
    b = (a + rng.integers(1, n, a.size)) % n
    won = rng.random(a.size) < 1 / (1 + np.exp(-(f[a] - f[b])))
    return {"a": a, "b": b, "winner": np.where(won, "a", "b")}, f - f.mean()


def check_coverage(quick: bool) -> list[dict[str, Any]]:
    """Share of intervals that hold the truth, and of boards all of whose rank intervals do."""
    sizes = [
        (20, 10, 500, 1.0),
        (20, 50, 500, 1.0),
        (50, 40, 200, 1.0),
        (200, 50, 40, 1.0),
        (20, 50, 500, 0.0),
    ]
    out = []
    for n, per_item, seeds, spread in sizes:
        seeds = max(4, seeds // 20) if quick else seeds
        covered, together = [], []
        for seed in range(seeds):
            table, f = simulated(n, per_item, seed, spread)
            found = rate(table)
            board = found.columns
            if len(board["item"]) < n:
                continue
            order = np.array(board["item"])
            truth = 1000 + POINTS * f[order]
            covered.append(np.mean((board["lower"] <= truth) & (truth <= board["upper"])))
            # Of equal items every rank is right, and every sure difference wrong.
            best = 1 + (f[order][:, None] < f[order][None, :]).sum(axis=1)
            worst = n - (f[order][:, None] > f[order][None, :]).sum(axis=1)
            together.append(np.all((board["rank_lower"] <= best) & (worst <= board["rank_upper"])))
        out.append(
            {"items": n, "battles of each": per_item, "spread": spread, "seeds": len(covered),
             "intervals": float(np.mean(covered)),
             "all ranks": float(np.mean(together))}
        )  # fmt: skip
        print(out[-1], flush=True)
    return [*out, check_judges(20 if quick else 300)]


def check_judges(seeds: int, n: int = 10, judges: int = 60, per_judge: int = 25) -> dict[str, Any]:
    """Differences of the estimates over repeated draws of judges, beside their standard errors.

    The judges' tastes are drawn anew each time, with the same strengths of the items: the mean of all estimates is
    what an interval should hold.
    """
    f = np.linspace(-1.5, 1.5, n)
    estimates, errors = [], {"judge": [], False: []}
    for seed in range(seeds):
        rng = np.random.default_rng(seed)
        judge = np.repeat(np.arange(judges), per_judge)
        a = rng.integers(0, n, judge.size)
        b = (a + rng.integers(1, n, judge.size)) % n
        taste = rng.normal(size=(judges, n)) * np.where(np.arange(judges) % 2, 2.0, 0.0)[:, None]
        d = f[a] - f[b] + taste[judge, a] - taste[judge, b]
        table = {
            "a": a,
            "b": b,
            "judge": judge,
            "winner": (rng.random(a.size) < 1 / (1 + np.exp(-d))).astype(float),
        }
        found = rate(table, judge="judge", alpha=0.03)
        estimates.append(found.strengths.scores)
        q = ranks.quantile_of(0.95, found.degrees_of_freedom)
        errors["judge"].append(q * found.standard_errors)
        errors[False].append(1.96 * rate(table, judge="judge", alpha=0.03, cluster=False).standard_errors)
    off = np.abs(np.array(estimates) - np.mean(estimates, axis=0))
    sandwich, model = (float(np.mean(off <= np.array(errors[key]))) for key in ("judge", False))
    out = {"judges": judges, "items": n, "seeds": seeds, "sandwich": sandwich, "model-based": model}
    print(out, flush=True)
    return out


def check_held_out(quick: bool) -> list[dict[str, Any]]:
    """Held-out log loss with alpha chosen without each fold, and what it would be with the alpha of all battles."""
    out = []
    for n, per_item, spread in ((10, 10, 0.0), (20, 20, 0.3), (50, 20, 1.0)):
        losses = []
        for seed in range(5 if quick else 40):
            table, _ = simulated(n, per_item, seed, spread)
            found = rate(table)
            given = rate(table, alpha=found.alpha)
            losses.append([one.held_out["log_loss"][0] for one in (found, given)])
        honest, flattered = np.mean(losses, axis=0)
        out.append({"items": n, "battles": n * per_item // 2, "spread": spread, "seeds": len(losses),
                    "log loss": honest, "with the alpha of all battles": flattered})  # fmt: skip
        print(out[-1], flush=True)
    return out


def check_many_ranks(quick: bool, n: int = 1100) -> list[dict[str, Any]]:
    """Boards of more than 1,000 items: share of those all of whose best 20, or 100, ranks are inside their intervals.

    One kind of board has normal strengths and the same number of battles for each item; the other has strengths with
    heavy tails (t distribution, 4 degrees of freedom), and most of the battles are of a few items.
    """
    warnings.simplefilter("ignore")
    out = []
    for heavy in (False, True):
        inside: dict[int, list[bool]] = {20: [], 100: [], n: []}
        widths = []
        for seed in range(3 if quick else 60):
            rng = np.random.default_rng(seed)
            f = rng.standard_t(4, n) if heavy else rng.normal(size=n)
            p = rng.pareto(1.2, n) + 0.2 if heavy else np.ones(n)
            a, b = (rng.choice(n, 15 * n, p=p / p.sum()) for _ in range(2))
            a, b = a[a != b], b[a != b]
            won = rng.random(a.size) < 1 / (1 + np.exp(-(f[a] - f[b])))
            found = rate({"a": a, "b": b, "winner": won.astype(float)})
            f = f[np.array(found.items)]
            rank = dict(zip(found.items, 1 + np.argsort(np.argsort(-f))))
            for k, held in inside.items():
                board = found.columns if k == n else found.top(k, ranks=True)
                true = np.array([rank[item] for item in board["item"]])
                low, high = np.array(board["rank_lower"]), np.array(board["rank_upper"])
                held.append(bool(((low <= true) & (true <= high)).all()))
            widths.append(high[0] - low[0])
        out.append(
            {"items": n, "heavy tails": heavy, "seeds": len(widths),
             "median width of the first": float(np.median(widths)),
             **{f"best {k}" if k < n else "all": float(np.mean(held)) for k, held in inside.items()}}
        )  # fmt: skip
        print(out[-1], flush=True)
    return out


def battles_until_settled(n: int, seed: int, informed: bool, k: int = 5, most: int = 40_000) -> int:
    """Battles until the top k are significantly ahead of all others, a tenth more at a time."""
    rng = np.random.default_rng(seed)
    f = np.sort(rng.normal(size=n))[::-1]
    f[:k] += 0.6
    a = np.arange(n)
    pairs = np.stack([np.r_[a, a], np.r_[(a + 1) % n, (a + 7) % n]], axis=1)
    share = np.empty(0)
    while pairs.shape[0] < most:
        new = pairs[share.size :]
        won = rng.random(new.shape[0]) < 1 / (1 + np.exp(-(f[new[:, 0]] - f[new[:, 1]])))
        share = np.concatenate([share, won])
        battles = Battles(
            list(range(n)), pairs, share, np.ones(share.size), covariates=np.empty((share.size, 0))
        )
        strengths = fit_strengths(battles, 1 / 32)
        C = dense_covariance(strengths, None)
        a, b = planning.differences_of_goal(strengths.scores, k).T
        least = ranks.simultaneous_threshold(C, 0.95) * ranks.standard_errors_of_differences(C)[a, b]
        if (strengths.scores[a] - strengths.scores[b] > least).all():
            break
        more = max(20, share.size // 10)
        if informed:
            drawn = planning.next_pairs(strengths.scores, C, more, k)
        else:
            one = rng.integers(0, n, more)
            drawn = np.stack([one, (one + rng.integers(1, n, more)) % n], axis=1)
        pairs = np.concatenate([pairs, drawn])
    return share.size


def check_battles_needed(seeds: int) -> dict[str, float]:
    """How often the number of battles that `battles_needed` gives settles which of two neighbours is better."""
    settled, needed_battles = [], []
    for seed in range(seeds):
        table, f = simulated(8, 60, seed, 1.0)
        found = rate(table, alpha=1 / 32)
        one, other = found.columns["item"][:2]
        needed = found.battles_needed((one, other))
        if not needed or needed > 5000:
            continue
        rng = np.random.default_rng(10_000 + seed)
        # As strong as estimated: that is what the number is about.
        won = rng.random(needed) < found.win_probability(one, other)
        more = {"a": np.full(needed, one), "b": np.full(needed, other), "winner": np.where(won, "a", "b")}
        later = found.update(more)
        settled.append(later.battles_needed((one, other)) == 0)
        needed_battles.append(needed)
    return {
        "boards": len(settled),
        "median needed": float(np.median(needed_battles)),
        "settled": float(np.mean(settled)),
    }


def check_planning(quick: bool) -> list[dict[str, Any]]:
    """Battles that settle the top 5, chosen and at random."""
    out = []
    for n in (20, 40):
        seeds = range(3 if quick else 20)
        chosen, random = (np.mean([battles_until_settled(n, s, how) for s in seeds]) for how in (True, False))
        out.append(
            {"items": n, "seeds": len(seeds), "chosen": chosen, "random": random, "ratio": chosen / random}
        )
        print(out[-1], flush=True)
    return [*out, check_battles_needed(10 if quick else 100)]


def check_covariates(quick: bool) -> dict[str, Any]:
    """CPU seconds beside one logistic regression on the same sparse design."""
    import scipy.sparse as sp
    from sklearn.linear_model import LogisticRegression

    n, size, p = 200, 100_000 if quick else 1_000_000, 5
    rng = np.random.default_rng(0)
    f, Z = rng.normal(size=n), rng.normal(size=(size, p))
    a = rng.integers(0, n, size)
    b = (a + rng.integers(1, n, size)) % n
    won = rng.random(size) < 1 / (1 + np.exp(-(f[a] - f[b] + 0.2 * Z.sum(axis=1))))
    names = [f"z{k}" for k in range(p)]
    table = {"a": a, "b": b, "winner": won.astype(float), "judge": rng.integers(0, 10_000, size)}
    table |= dict(zip(names, Z.T, strict=True))
    rows = np.arange(size)
    sides = sp.csr_array(
        (np.r_[np.ones(size), -np.ones(size)], (np.r_[rows, rows], np.r_[a, b])), shape=(size, n)
    )
    X = sp.csr_array(sp.hstack([sides, sp.csr_array(Z)]))
    out = {}
    for name, work in (
        ("logistic regression", lambda: LogisticRegression(fit_intercept=False, max_iter=1000).fit(X, won)),
        ("rate, with sandwich and ranks", lambda: rate(table, judge="judge", covariates=names).table),
    ):
        start = time.process_time()
        work()
        out[name] = time.process_time() - start
    out["ratio"] = out["rate, with sandwich and ranks"] / out["logistic regression"]
    return out


def prepare_matches() -> tuple[pd.DataFrame]:
    rate({"winner": ["x", "y"], "loser": ["y", "x"]}, alpha=0.1)
    return (matches(["winner", "loser"]),)


def rate_matches(frame: pd.DataFrame) -> None:
    warnings.simplefilter("ignore")
    _ = rate(frame).standard_errors


def check_matches() -> dict[str, Any]:
    """CPU seconds of ratings (alpha given and chosen), of intervals of the best 100 and of all; megabytes."""
    warnings.simplefilter("ignore")
    (frame,) = prepare_matches()
    out: dict[str, Any] = {"matches": len(frame)}
    for alpha in (0.25, "auto"):
        start = time.process_time()
        found = rate(frame, alpha=alpha)
        out[f"ratings, alpha {alpha}"] = time.process_time() - start
    out["players"] = len(found.items)
    start = time.process_time()
    found.top(100)
    out["intervals of the best 100"] = time.process_time() - start
    start = time.process_time()
    top = found.top(100, ranks=True)
    out["the same with ranks"] = time.process_time() - start
    out["ranks of the first, the 10th and the 100th"] = [
        [int(top[name][row]) for name in ("rank_lower", "rank_upper")] for row in (0, 9, 99)
    ]
    start = time.process_time()
    _ = found.standard_errors
    out["intervals of all"] = time.process_time() - start
    out["megabytes"] = peak_memory(prepare_matches, rate_matches) / 1e6
    return out


TOUR = list("GMAFD")
SURFACES = {"Carpet": "Hard"}
# Years by which settings are chosen; in 2020 there was hardly any tennis.
CHOOSING, TESTED = (2019, 2021, 2022), 2023
# Half-life in days, alpha, and how far surfaces may differ.
GRID = ((200.0, 250.0, 300.0, 365.0, 450.0), (0.025, 0.05, 0.07, 0.1, 0.14, 0.2), (0.1, 0.15, 0.2, 0.3, 0.5))
# Half-lives after which a match weighs less than one in a hundred.
FORGOTTEN = 7


def tour_matches() -> pd.DataFrame:
    """Matches since 2010 with their days and surfaces."""
    frame = matches(["date", "winner", "loser", "level", "surface"])
    frame = frame[frame["date"] >= 20100101].reset_index(drop=True)
    days = pd.to_datetime(frame["date"].astype(str), format="%Y%m%d") - pd.Timestamp("1970-01-01")
    return frame.assign(
        day=days.dt.days.astype(float), surface=frame["surface"].replace(SURFACES).fillna("Hard")
    )


def predict_months(
    frame: pd.DataFrame, year: int, half_life: float, alpha: float, ratio: float, tour_only: bool = False
) -> np.ndarray:
    """The probability of each winner of a tour match of the year, month by month from the past."""
    out = []
    is_tour, month = frame["level"].isin(TOUR).to_numpy(), (frame["date"] // 100).to_numpy()
    for number in range(1, 13):
        test = frame[(month == 100 * year + number) & is_tour]
        if test.empty:
            continue
        now = test["day"].min()
        known = (frame["day"] < now) & (frame["day"] > now - FORGOTTEN * half_life)
        past = frame[known & is_tour if tour_only else known]
        ratings = rate(past, time="day", half_life=half_life, alpha=alpha)
        if ratio:
            out.append(ratings.boards(past["surface"], ratio=ratio).predict(test, test["surface"]))
        else:
            out.append(ratings.predict(test))
    return np.concatenate(out)


def choose_settings(
    frame: pd.DataFrame, ratios: tuple[float, ...]
) -> tuple[tuple[float, ...], dict[str, float]]:
    """The settings with the least mean log loss of the choosing years, one after the other until none changes."""
    losses: dict[tuple[float, ...], float] = {}

    def loss(one: tuple[float, ...]) -> float:
        if one not in losses:
            years = [-np.log(predict_months(frame, year, *one)).mean() for year in CHOOSING]
            losses[one] = float(np.mean(years))
            print(one, round(losses[one], 5), flush=True)
        return losses[one]

    grid = (*GRID[:2], ratios)
    chosen, last = (300.0, 0.1, ratios[len(ratios) // 2]), None
    while chosen != last:
        last = chosen
        for k, values in enumerate(grid):
            chosen = min(((*chosen[:k], value, *chosen[k + 1 :]) for value in values), key=loss)
    return chosen, {str(one): value for one, value in losses.items()}


def expected_error(p: np.ndarray) -> tuple[float, float]:
    """Mean and 95 % quantile of the calibration error if these probabilities were right: that of chance alone."""
    rng = np.random.default_rng(0)
    errors = [
        calibration_of_preferences(p, (rng.random(p.size) < p).astype(float)).expected_calibration_error
        for _ in range(500)
    ]
    return float(np.mean(errors)), float(np.quantile(errors, 0.95))


def check_tennis(quick: bool) -> dict[str, Any]:
    """Log loss of 2023, which nothing is chosen by: one board, and boards for surfaces that borrow strength."""
    warnings.simplefilter("ignore")
    frame = tour_matches()
    choosing = frame[frame["date"] < 10000 * TESTED]
    out: dict[str, Any] = {}
    for name, ratios in (("one board", (0.0,)), ("boards by surface", GRID[2])):
        chosen, losses = ((250.0, 0.1, ratios[0]), {}) if quick else choose_settings(choosing, ratios)
        out[name] = {
            "half-life": chosen[0],
            "alpha": chosen[1],
            "ratio": chosen[2],
            "losses of choosing years": losses,
        }
    for one in out.values():
        p = predict_months(frame, TESTED, one["half-life"], one["alpha"], one["ratio"])
        found = calibration_of_preferences(p)
        mean, most = expected_error(p)
        one |= {
            "log loss": found.log_loss,
            "accuracy": found.accuracy,
            "matches": found.n_pairs,
            "calibration error": found.expected_calibration_error,
            "by chance alone": mean,
            "95 % of chance": most,
        }
        print(one, flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--peers", default=sys.executable)
    given = parser.parse_args()
    parts = {
        "peers": lambda: compare_peers(given.peers),
        "coverage": lambda: check_coverage(given.quick),
        "held_out": lambda: check_held_out(given.quick),
        "ranks": lambda: check_many_ranks(given.quick),
        "planning": lambda: check_planning(given.quick),
        "covariates": lambda: check_covariates(given.quick),
        "matches": check_matches,
        "tennis": lambda: check_tennis(given.quick),
    }
    path = RESULTS / "ratings.json"
    results = json.loads(path.read_text())["results"] if path.exists() else []
    found = {one.pop("part"): one["found"] for one in results}
    for name in given.parts or parts:
        found[name] = json.loads(json.dumps(parts[name](), default=float))
        print(name, json.dumps(found[name], indent=2), flush=True)
        if not given.quick:
            write_results("ratings", *({"part": part, "found": one} for part, one in found.items()))


if __name__ == "__main__":
    main()
