"""RankRLS on a CUDA device through the array API: rate, leave-pair-out, kernels larger than the device, same results.

    python benchmarks/gpu.py                      # on the CUDA device, all parts
    python benchmarks/gpu.py --parts rate pairs   # some of them
    python benchmarks/gpu.py --quick              # small sizes, on the processor where there is no CUDA

Imports PyTorch, NumPy, SciPy and scikit-learn (with its own copy of array-api-compat); not Numba. Parts:

- same:   on a small problem the device gives what NumPy arrays give (float64; float32 with its error);
- rate:   reduced set, m = 200,000 in queries of 20, r = 10,000, float64, from features to coefficients. The rate is 2
          m r² / seconds, the operations of the Gram matrix as a plain product, over the device's own rate for a
          product of two 8192 × 8192 matrices: at least 65 %, and under 2 s;
- pairs:  leave-pair-out over all 50 million pairs of m = 10,000 rows: under 15 s;
- metric: RankRFM from data to model on the device, metric included: m = 1 million × 92 in queries of 100, r = 8000:
          under 20 s;
- larger: m = 5 million, r = 20,000: the kernel block, 800 GB, is larger than the device and is never stored.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
import warnings
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

os.environ.setdefault("SCIPY_ARRAY_API", "1")

import numpy as np
import sklearn
import torch

from preflearn import RankRFM, RankRLS
from preflearn.model_selection import cross_val_predict, leave_pair_out
from preflearn.model_selection.cross_validation import leave_pair_out_tally
from preflearn.numerics.namespace import as_host

PARTS = ("same", "rate", "pairs", "metric", "larger")


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def timed(function, device: torch.device, repeats: int = 1):
    """Least seconds over the repeats, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeats):
        result = None
        synchronise(device)
        start = time.perf_counter()
        result = function()
        synchronise(device)
        best = min(best, time.perf_counter() - start)
    return best, result


def product_rate(device: torch.device, n: int) -> float:
    """Operations a second of a float64 matrix product."""
    A = torch.randn(n, n, dtype=torch.float64, device=device)
    B = torch.randn(n, n, dtype=torch.float64, device=device)
    A @ B
    seconds, _ = timed(lambda: A @ B, device, repeats=5)
    return 2 * n**3 / seconds


def problem(m: int, n: int, device: torch.device, dtype=torch.float64, seed: int = 0):
    """Rows, scores and labels of queries of 20, made on the device in chunks."""
    generator = torch.Generator(device=device).manual_seed(seed)
    X = torch.empty(m, n, dtype=dtype, device=device)
    for start in range(0, m, 1_000_000):
        X[start : start + 1_000_000].normal_(generator=generator)
    y = torch.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * torch.cos(3 * X[:, 3])
    y += 0.3 * torch.randn(m, dtype=dtype, device=device, generator=generator)
    return X, y, np.arange(m) // 20


def same_results(device: torch.device, quick: bool) -> dict:
    m = 400 if quick else 4000
    X, y, qid = problem(m, 6, device)
    host = (X.cpu().numpy(), y.cpu().numpy())
    found = {}
    for name, options in (
        ("full kernel", {"kernel": "rbf", "gamma": 0.1}),
        ("reduced set", {"kernel": "rbf", "gamma": 0.1, "n_basis": m // 8, "random_state": 0}),
        ("linear", {}),
    ):
        model = RankRLS(1.0, **options)
        wanted, wanted_out = reference(model, *host, qid)
        scale = float(np.abs(wanted).max())
        with sklearn.config_context(array_api_dispatch=True):
            double = as_host(sklearn.clone(model).fit(X, y, qid=qid).predict(X))
            single = as_host(sklearn.clone(model).fit(X.float(), y, qid=qid).predict(X.float()))
            held_out = as_host(cross_val_predict(model, X, y, qid=qid))
        found[name] = {
            "float64": float(np.abs(double - wanted).max()) / scale,
            "float32": float(np.abs(single - wanted).max()) / scale,
            "leave-query-out": float(np.abs(held_out - wanted_out).max()) / scale,
        }
        print(f"same results, {name}: {found[name]}")
    against = "NumPy arrays" if find_spec("numba") else "tensors on the processor"
    return {"part": "same", "m": m, "against": against, "largest_relative_difference": found}


def reference(model, X: np.ndarray, y: np.ndarray, qid: np.ndarray):
    """Predictions and leave-query-out on NumPy arrays; on tensors on the processor where Numba is missing."""
    if find_spec("numba"):
        return sklearn.clone(model).fit(X, y, qid=qid).predict(X), cross_val_predict(model, X, y, qid=qid)
    with sklearn.config_context(array_api_dispatch=True):
        X, y = torch.asarray(X), torch.asarray(y)
        fitted = sklearn.clone(model).fit(X, y, qid=qid)
        return as_host(fitted.predict(X)), as_host(cross_val_predict(model, X, y, qid=qid))


def concordance(y: torch.Tensor, f: torch.Tensor) -> float:
    """Of queries of 20, whose scores have no ties."""
    y, f = y.reshape(-1, 20), f.reshape(-1, 20)
    agree = (y[:, :, None] > y[:, None, :]) == (f[:, :, None] > f[:, None, :])
    i, j = torch.triu_indices(20, 20, 1)
    return float(agree[:, i, j].double().mean())


def rate_of_reduced_set(device: torch.device, quick: bool) -> dict:
    m, r, n = (4000, 200, 20) if quick else (200_000, 10_000, 50)
    X, y, qid = problem(m, n, device)
    model = RankRLS(1.0, kernel="rbf", gamma=1 / n, n_basis=r, random_state=0, weighting="item")
    peak = product_rate(device, 512 if quick else 8192)
    with sklearn.config_context(array_api_dispatch=True):
        small = sklearn.clone(model).set_params(n_basis=100)
        small.fit(X[:2000], y[:2000], qid=qid[:2000])  # start of the libraries
        seconds, fitted = timed(lambda: sklearn.clone(model).fit(X, y, qid=qid), device, repeats=3)
        new, score, _ = problem(min(m, 20_000), n, device, seed=1)
        quality = concordance(score, fitted.predict(new))
    rate = 2 * m * r**2 / seconds
    result = {
        "part": "rate",
        "m": m,
        "r": r,
        "n_features": n,
        "seconds": seconds,
        "product_tflops": peak / 1e12,
        "fit_tflops": rate / 1e12,
        "share_of_product_rate": rate / peak,
        "held_out_concordance": quality,
        "met": bool(rate >= 0.65 * peak and seconds < 2),
    }
    print(
        f"reduced set m = {m:,}, r = {r:,}: {seconds:.2f} s, {rate / 1e12:.1f} of {peak / 1e12:.1f} TFLOP/s "
        f"({100 * rate / peak:.0f} %), held-out concordance {quality:.4f}"
    )
    return result


def pairs_held_out(device: torch.device, quick: bool) -> dict:
    m = 500 if quick else 10_000
    X, y, _ = problem(m, 20, device)
    model = RankRLS(1.0, kernel="rbf", gamma=0.05, weighting="item")
    with sklearn.config_context(array_api_dispatch=True):
        leave_pair_out_tally(model, X[:200], y[:200])  # start of the libraries
        seconds, tally = timed(lambda: leave_pair_out_tally(model, X, y), device, repeats=2)
        with_predictions, (pairs, _) = timed(lambda: leave_pair_out(model, X, y), device)
    result = {
        "part": "pairs",
        "m": m,
        "n_pairs": tally.n_pairs,
        "concordance": tally.share,
        "seconds": seconds,
        "seconds_with_all_predictions": with_predictions,
        "met": bool(seconds < 15),
    }
    print(
        f"leave-pair-out, {tally.n_pairs:,} pairs: concordance in {seconds:.2f} s; with both predictions of "
        f"{pairs.shape[0]:,} pairs {with_predictions:.2f} s"
    )
    return result


def learned_metric(device: torch.device, quick: bool) -> dict:
    m, r, n = (4000, 200, 10) if quick else (1_000_000, 8000, 92)
    X, y, _ = problem(m, n, device)
    qid = np.arange(m) // 100
    with sklearn.config_context(array_api_dispatch=True):
        few = slice(0, 500)
        RankRFM(n_basis=50, max_rounds=1).fit(X[few], y[few], qid=qid[few])  # start of the libraries
        seconds, fitted = timed(lambda: RankRFM(n_basis=r, random_state=0).fit(X, y, qid=qid), device)
        plain_seconds, plain = timed(
            lambda: RankRLS(fitted.alpha_, kernel="rbf", gamma="median", n_basis=r, random_state=0).fit(
                X, y, qid=qid
            ),
            device,
        )
        new, score, _ = problem(20_000, n, device, seed=1)
        quality, of_plain = (concordance(score, one.predict(new)) for one in (fitted, plain))
    print(
        f"m = {m:,} x {n}, r = {r:,}: RankRFM, {len(fitted.rounds_)} rounds on at most 25,000 rows, then all rows, "
        f"in {seconds:.1f} s on the device, concordance {quality:.4f} (RankRLS without a metric {of_plain:.4f} in "
        f"{plain_seconds:.1f} s)"
    )
    return {
        "part": "metric",
        "m": m,
        "r": r,
        "n_features": n,
        "n_rounds": len(fitted.rounds_),
        "best_round": fitted.best_round_,
        "seconds": seconds,
        "held_out_concordance": quality,
        "seconds_without_metric": plain_seconds,
        "held_out_concordance_without_metric": of_plain,
        "met": bool(seconds < 20),
    }


def larger_than_the_device(device: torch.device, quick: bool) -> dict:
    m, r, n = (20_000, 300, 20) if quick else (5_000_000, 20_000, 20)
    X, y, qid = problem(m, n, device)
    model = RankRLS(1.0, kernel="rbf", gamma=1 / n, n_basis=r, random_state=0, weighting="item")
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    with sklearn.config_context(array_api_dispatch=True):
        seconds, fitted = timed(lambda: sklearn.clone(model).fit(X, y, qid=qid), device)
        new, score, _ = problem(20_000, n, device, seed=1)
        quality = concordance(score, fitted.predict(new))
    peak = torch.cuda.max_memory_allocated(device) if device.type == "cuda" else None
    print(
        f"m = {m:,}, r = {r:,}, kernel block {8 * m * r / 1e9:.0f} GB: {seconds:.1f} s, "
        f"{2 * m * r**2 / seconds / 1e12:.1f} TFLOP/s, peak {'-' if peak is None else f'{peak / 1e9:.1f} GB'}, "
        f"held-out concordance {quality:.4f}"
    )
    return {
        "part": "larger",
        "m": m,
        "r": r,
        "seconds": seconds,
        "kernel_block_bytes": 8 * m * r,
        "peak_device_bytes": peak,
        "fit_tflops": 2 * m * r**2 / seconds / 1e12,
        "held_out_concordance": quality,
    }


def describe(device: torch.device) -> dict:
    versions = {"python": platform.python_version()}
    for package in ("torch", "numpy", "scipy", "scikit-learn"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    found = {"device": str(device), "versions": versions}
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found |= {
            "name": properties.name,
            "memory_bytes": properties.total_memory,
            "cuda": torch.version.cuda,
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="small sizes, nothing written unless --output is given"
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--output", type=Path, help="default: benchmarks/results/gpu.json")
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not options.quick:
        parser.error("no CUDA device: use --quick for a small run on the processor")
    warnings.simplefilter("ignore", UserWarning)
    print(json.dumps(describe(device)))
    functions = dict(
        zip(
            PARTS,
            (
                same_results,
                rate_of_reduced_set,
                pairs_held_out,
                learned_metric,
                larger_than_the_device,
            ),
            strict=True,
        )
    )
    output = options.output or Path(__file__).resolve().parent / "results" / "gpu.json"
    results = []
    for part in options.parts:
        results.append(functions[part](device, options.quick))
        if device.type == "cuda":
            torch.cuda.empty_cache()
        if (
            not options.quick or options.output
        ):  # after every part: a later one that fails takes nothing with it
            output.parent.mkdir(exist_ok=True)
            content = {"benchmark": "gpu", "machine": describe(device), "results": results}
            output.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
