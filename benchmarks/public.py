"""The table of `docs/peers.md` on a public set that you have: MSLR-WEB10K or 30K, Yahoo, Istella, any LETOR files.

python benchmarks/public.py --data MSLR-WEB10K              # Fold1/train.txt, Fold1/vali.txt, Fold1/test.txt, ...
python benchmarks/public.py --data Yahoo --jobs 16          # set1.train.txt, ...; Istella: train.txt, ...
python benchmarks/public.py --rows 3700000                  # seconds and memory on generated rows as in MSLR-WEB30K

Contestants, options, the cache of what has been measured and the tables are those of `peers.py`: each contestant learns
from the training and validation files, the test files are used once. No data set is downloaded. With ``--rows`` three
fifths of them train, a fifth validates and a fifth tests; memory is that of a process beyond the data.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import _harness
import peers
from preflearn import AutoRanker
from preflearn.metrics import concordance, ndcg
from ranking_sets import DATA, files_of_folds, like_mslr, standard_fold
from rivals import Setting, lightgbm_squares

TREES = 300


def presets():
    for name, preset in (("AutoRanker, fast", "fast"), ("AutoRanker", None)):
        yield (
            name,
            lambda part, preset=preset: (
                AutoRanker(preset=preset, random_state=0).fit(part.X, part.y, qid=part.qid).predict
            ),
        )
    yield (
        f"LightGBM, {TREES} trees",
        lambda part: lightgbm_squares(part, None, Setting(63, 0.1, 20), TREES)[0],
    )


def at_size(rows: int, only: str) -> None:
    test = like_mslr(rows // 5, 1)
    part = like_mslr(rows - rows // 5, 0)
    small = like_mslr(1200, 2)
    found = []
    for name, train in presets():
        if only not in name:
            continue
        try:
            train(small)  # imports and compiled loops
        except ImportError as missing:
            print(f"{name}: {missing}")
            continue
        _harness._forget_peak()
        before, start, cpu = _harness._resident_bytes(), time.perf_counter(), time.process_time()
        predict = train(part)
        trained, cpu = time.perf_counter() - start, time.process_time() - cpu
        peak = _harness._peak_bytes() - before
        start = time.perf_counter()
        scores = predict(test.X) if name.startswith("LightGBM") else predict(test.X, qid=test.qid)
        found.append(
            {
                "contestant": name,
                "seconds": trained,
                "cpu_s": cpu,
                "peak_gb": peak / 1e9,
                "predict_us_a_row": 1e6 * (time.perf_counter() - start) / len(test.y),
                "concordance": concordance(test.y, scores, test.qid),
                "ndcg_at_10": ndcg(test.y, scores, test.qid, k=10),
            }
        )
        print(found[-1], flush=True)
        result = {"question": f"{len(part.y):,} rows", "gb_of_data": part.X.nbytes / 1e9, "results": found}
        _harness.write_results("public_size", result)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, add_help=False
    )
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rows", type=int)
    parser.add_argument("--only", default="")
    options, others = parser.parse_known_args()
    if options.rows:
        at_size(options.rows, options.only)
        return
    if options.data is None:
        parser.error("--data names the folder of the files, or --rows says how many to generate")
    DATA.clear()
    DATA[options.data.resolve().name] = standard_fold, len(files_of_folds(options.data))
    peers.main("public")


if __name__ == "__main__":
    main()
