"""Which boosted trees should AutoRanker have: its own, scikit-learn's or LightGBM's? AutoRanker as a whole with each.

OMP_NUM_THREADS=2 python benchmarks/trees.py                                   # 1,000, 10,000 and 57,000 rows
OMP_NUM_THREADS=2 python benchmarks/trees.py --data FOLDER --sets ohsumed lightgbm

Only what grows the trees changes: each library gets the same codes of bins, targets centred inside queries, rate,
leaves, smallest leaf, shrinkage, share of features and stages, and its trees become the same plain arrays. LightGBM
also gets the gradients of pairs; scikit-learn's squared error has no room for them. The difference to the own trees
is that of the concordance of test queries, with its standard error over them. Seconds are those of all processors. A
run replaces what the file of results has on the same data, and leaves the rest.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from _harness import RESULTS, write_results
from preflearn import AutoRanker
from preflearn.auto import _loops, trees
from preflearn.metrics import concordance
from preflearn.numerics.threads import threads_limited
from ranking_sets import DATA, Part
from sizes import UTILITIES, make


@dataclass
class _Library:
    """In place of what grows trees in `preflearn.auto.trees`."""

    blocks: np.ndarray
    n_features: int
    targets: np.ndarray
    starts: np.ndarray
    test_codes: np.ndarray
    options: _loops.TreeOptions
    seed: int
    n_threads: int = 1

    def __post_init__(self) -> None:
        by_row = self.blocks.transpose(1, 0, 2).reshape(self.targets.shape[0], -1)
        self._codes = np.ascontiguousarray(by_row[:, : self.n_features])
        self.trees: list[_loops.Trees] = []
        self._test_scores = np.zeros(self.test_codes.shape[1])

    def grow(self, n_trees: int) -> np.ndarray:
        found = _loops._no_trees(n_trees, self.options.leaves)
        for k, nodes in enumerate(self._grown(n_trees)):
            size = nodes[0].shape[0]
            for out, values in zip(found, nodes, strict=False):
                out[k, :size] = values
            found.sizes[k] = size
            _loops._predict(found, k, self.test_codes, self._test_scores)
        self.trees.append(found)
        return self._test_scores.copy()


class ScikitLearn(_Library):
    """Squared error on centred targets, with `warm_start`."""

    _model = None

    def _grown(self, n_trees):
        from sklearn.ensemble import HistGradientBoostingRegressor

        n_bins, leaves, least, rate, ridge, share, _ = self.options
        if self._model is None:
            self._X = self._codes.astype(np.float64)
            self._model = HistGradientBoostingRegressor(
                max_iter=0, learning_rate=rate, max_leaf_nodes=leaves, min_samples_leaf=least, l2_regularization=ridge,
                max_features=share, max_bins=n_bins, early_stopping=False, warm_start=True, random_state=self.seed,
            )  # fmt: skip
        before = self._model.max_iter
        self._model.set_params(max_iter=before + n_trees)
        with threads_limited(self.n_threads, "openmp"):
            self._model.fit(self._X, self.targets)
        for (one,) in self._model._predictors[before:]:
            n = one.nodes
            code = np.where(n["is_leaf"], 0, np.floor(n["num_threshold"])).astype(np.int32)
            yield n["feature_idx"], code, n["left"], n["right"], n["value"], np.maximum(n["gain"], 0)


class LightGBM(_Library):
    """The gradients of all pairs inside queries, as an objective of ours."""

    _booster = None

    def _grown(self, n_trees):
        import lightgbm

        n_bins, leaves, least, rate, ridge, share, n_blocks = self.options
        if self._booster is None:
            parameters = {
                "objective": "none", "learning_rate": rate, "num_leaves": leaves, "min_data_in_leaf": least,
                "min_sum_hessian_in_leaf": 0.0, "lambda_l2": ridge, "feature_fraction_bynode": share,
                "feature_fraction": n_blocks / self.blocks.shape[0], "max_bin": n_bins, "min_data_in_bin": 1,
                "seed": self.seed % 2**31, "deterministic": True, "force_col_wise": True, "verbosity": -1,
                "num_threads": self.n_threads, "boost_from_average": False,
            }  # fmt: skip
            data = lightgbm.Dataset(self._codes, self.targets, params=parameters, free_raw_data=True)
            self._booster = lightgbm.Booster(parameters, data)
            self._ones, self._gradient = np.ones(self.targets.shape[0]), np.empty(self.targets.shape[0])
        before = self._booster.current_iteration()
        for _ in range(n_trees):
            self._booster.update(fobj=self._objective)
        text = self._booster.model_to_string(start_iteration=before, num_iteration=n_trees)
        for tree in text.split("\nTree=")[1:]:
            fields = dict(line.partition("=")[::2] for line in tree.split("\n\n")[0].splitlines())
            yield _lightgbm_nodes(fields)

    def _objective(self, scores, _):
        _loops._gradients(scores.astype(np.float64), self.targets, self.starts, self._gradient)
        return -self._gradient, self._ones


def _lightgbm_nodes(fields: dict[str, str]) -> tuple[np.ndarray, ...]:
    """Inner nodes, then leaves, which LightGBM counts by negative numbers."""

    def read(name: str) -> np.ndarray:
        return np.array(fields.get(name, "").split(), dtype=float)

    values, inner = read("leaf_value"), read("split_feature").shape[0]

    def with_leaves(numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([numbers, np.zeros(values.shape[0])])

    children = (read(name).astype(int) for name in ("left_child", "right_child"))
    left, right = (np.where(one < 0, inner + ~one, one) for one in children)
    code = np.floor(np.maximum(read("threshold"), 0))
    return (
        *map(with_leaves, (read("split_feature"), code, left, right)),
        np.concatenate([np.zeros(inner), values]),
        with_leaves(read("split_gain")),
    )


GROWERS = {"own": trees._Grown, "scikit-learn": ScikitLearn, "LightGBM": LightGBM}


def measure(train: Part, test: Part, grower: str, preset: str | None) -> dict:
    """Quality and processor seconds of one AutoRanker; ``per_query`` is taken out before the results are written."""
    trees._Grown = GROWERS[grower]
    cpu = time.process_time()
    model = AutoRanker(random_state=0, preset=preset).fit(train.X, train.y, qid=train.qid)
    cpu = time.process_time() - cpu
    start = time.process_time()
    scores = model.predict(test.X, qid=test.qid)
    predict = time.process_time() - start
    values = concordance(test.y, scores, test.qid, per_query=True).values
    member = next(one for one in model.leaderboard_ if one.name == "boosted trees")
    return {
        "trees": grower,
        "rows": train.y.shape[0],
        "concordance": float(np.nanmean(values)),
        "per_query": values,
        "held out": model.best_score_,
        "held out, trees": member.score,
        "share": member.weight,
        "chosen": member.detail,
        "cpu_s": cpu,
        "cpu_us_a_row": 1e6 * predict / test.y.shape[0],
    }


def compare(name: str, train: Part, test: Part, growers: list[str], preset: str | None) -> list[dict]:
    rows = [{"data": name, "preset": preset, **measure(train, test, one, preset)} for one in growers]
    first = rows[0]
    for row in rows:
        difference = row["per_query"] - first["per_query"]
        difference = difference[~np.isnan(difference)]
        row["difference"] = float(difference.mean())
        row["difference_error"] = float(difference.std(ddof=1) / np.sqrt(difference.size))
        row["cpu_ratio"] = row["cpu_s"] / first["cpu_s"]
        print(
            f"{name:13} {row['rows']:9,}  {row['trees']:12} {row['concordance']:.4f}  {row['difference']:+.4f} ± "
            f"{row['difference_error']:.4f}  trees held out {row['held out, trees']:.4f}  {row['cpu_s']:7.1f} CPU s  "
            f"{row['cpu_ratio']:.2f}  {row['cpu_us_a_row']:.1f} µs a row  {row['share']:.0%} {row['chosen']}",
            flush=True,
        )
    return [{key: value for key, value in row.items() if key != "per_query"} for row in rows]


def _question(row: dict) -> tuple:
    return row["data"], row["preset"], row["rows"], row["trees"]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="*", default=[1_000, 10_000, 60_000])
    parser.add_argument("--kinds", nargs="+", default=["additive", "interactions"], choices=list(UTILITIES))
    parser.add_argument("--sets", nargs="*", default=[], choices=list(DATA))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--fold", type=int, default=0)
    parser.add_argument("--only", nargs="+", default=list(GROWERS), choices=list(GROWERS))
    parser.add_argument("--preset", choices=["fast", "best"])
    parser.add_argument("--seed", type=int, default=10)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    train, test = make("additive", 1_000, 99)
    for one in options.only:  # compilation does not count
        measure(train, test, one, "fast")
    path = RESULTS / "trees.json"
    results = json.loads(path.read_text())["results"] if path.exists() else []

    def add(name: str, train: Part, test: Part) -> None:
        new = compare(name, train, test, options.only, options.preset)
        results[:] = [one for one in results if _question(one) not in map(_question, new)] + new
        write_results("trees", *results)

    for name in options.sets:
        first, second, test = DATA[name][0](options.data, options.fold)
        add(name, first + second, test)
    for n_rows in options.rows if not options.sets else []:
        for kind in options.kinds:
            add(kind, *make(kind, n_rows, options.seed))


if __name__ == "__main__":
    main()
