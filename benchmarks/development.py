"""What a change of AutoRanker costs and gains: folds inside training parts, and generated data. No test part is seen.

Each version of the library is measured by itself, on the same cells (the first that PYTHONPATH names is imported), and
then they are compared over the same queries:

    PYTHONPATH=BEFORE/src python benchmarks/development.py --data FOLDER --cache before.json --jobs 16
    python benchmarks/development.py --data FOLDER --cache now.json --jobs 16
    python benchmarks/development.py --cache now.json --since before.json

A fifth of the queries of the training and validation rows of the first fold of each set is held out, another fifth for
every seed. Generated data of `sizes.py` have other seeds than those that are reported (below 10).
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path

import numpy as np

import sizes
from _harness import in_processes, write_results
from preflearn import AutoRanker
from preflearn.metrics import concordance, ndcg
from ranking_sets import DATA, Part

REAL = ("mslr", "mslr10k", "lightgbm", "ohsumed", "ohsumed3", "mq2007")
# Kind and rows.
GENERATED = (
    ("interactions", 1_000), ("interactions", 3_000), ("interactions", 10_000),
    ("additive", 10_000), ("heavy tails", 10_000), ("noisy", 10_000),
)  # fmt: skip
MIXED = "generated"


def parts(name: str, seed: int, data: Path | None) -> tuple[Part, Part]:
    """Rows to learn from and rows to test on."""
    if ", " in name:
        kind, rows = name.rsplit(", ", 1)
        return sizes.make(kind, int(rows), seed)
    # Generated folds that `peers.py` does not report.
    first, second, third = DATA[name][0](data, seed + 100 if name == MIXED else 0)
    if name == MIXED:
        return first + second, third
    whole = first + second
    order = np.random.default_rng(seed // 5).permutation(int(whole.qid.max()) + 1)
    held = np.isin(whole.qid, order[seed % 5 :: 5])
    rest, test = (Part(whole.X[rows], whole.y[rows], whole.qid[rows]) for rows in (~held, held))
    return rest, test


def measure(cell: tuple[str, int, Path | None]) -> dict:
    """One training and its test."""
    name, seed, _ = cell
    warnings.simplefilter("ignore")
    train, test = parts(*cell)
    start = time.process_time()
    model = AutoRanker(random_state=seed).fit(train.X, train.y, qid=train.qid)
    seconds = time.process_time() - start
    scores = model.predict(test.X, qid=test.qid)
    return {
        "data": name,
        "seed": seed,
        "cpu_s": seconds,
        "best_score": model.best_score_,
        "concordance": concordance(test.y, scores, test.qid, per_query=True).values.tolist(),
        "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10, per_query=True).values.tolist(),
    }


def compared(now: list[dict], before: list[dict]) -> list[dict]:
    """Differences over the same test queries, set by set."""
    earlier = {(one["data"], one["seed"]): one for one in before}
    rows = []
    for name in dict.fromkeys(one["data"] for one in now):
        both = [
            (one, earlier[name, one["seed"]])
            for one in now
            if one["data"] == name and (name, one["seed"]) in earlier
        ]
        if not both:
            continue
        row = {"data": name, "folds": len(both)}
        for column in ("concordance", "ndcg_at_10"):
            ahead = np.concatenate([np.array(a[column], float) - np.array(b[column], float) for a, b in both])
            ahead = ahead[~np.isnan(ahead)]
            row[column], row[f"{column}_error"] = (
                float(ahead.mean()),
                float(ahead.std(ddof=1) / ahead.size**0.5),
            )
        row["cpu_s"], row["cpu_s_before"] = (
            float(np.mean([one[place]["cpu_s"] for one in both])) for place in (0, 1)
        )
        row["best_score_minus_new"] = float(
            np.mean([one["best_score"] - np.nanmean(np.array(one["concordance"], float)) for one, _ in both])
        )
        rows.append(row)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, help="the folder that holds letor_ohsumed_v2 and the others")
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--since", type=Path, metavar="CACHE")
    parser.add_argument("--to", default="development", help="the file of results of --since")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    options = parser.parse_args()
    if options.since:
        now, before = (json.loads(one.read_text()) for one in (options.cache, options.since))
        rows = compared(now, before)
        for row in rows:
            print(
                f"{row['data']:20} {row['folds']} {row['concordance']:+.4f} ± {row['concordance_error']:.4f}  "
                f"{row['ndcg_at_10']:+.4f} ± {row['ndcg_at_10_error']:.4f}  "
                f"{row['cpu_s_before']:.1f} -> {row['cpu_s']:.1f} CPU s"
            )
        write_results(options.to, {"question": "AutoRanker, now minus before", "results": rows})
        return
    names = [f"{kind}, {rows}" for kind, rows in GENERATED] + [MIXED]
    names = [*(REAL if options.data else ()), *names]
    cells = [(name, seed, options.data) for seed in options.seeds for name in names]
    measure(("additive, 1000", 99, None))  # compilation does not count
    found = []
    for _, row in in_processes(measure, cells, jobs=options.jobs, seconds=options.seconds):
        found.append(row)
        options.cache.write_text(json.dumps(found))
        print(
            f"{row['data']:20} {row['seed']} {np.nanmean(row['concordance']):.4f} {row['cpu_s']:.1f} CPU s",
            flush=True,
        )


if __name__ == "__main__":
    main()
