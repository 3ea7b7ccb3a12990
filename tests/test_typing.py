"""What a type checker knows about a program that uses the library."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]

# Types that a user's editor and `mypy --strict` should see; a call of an untyped function is an error there.
PROGRAM = """
from typing import assert_type

import numpy as np

from preflearn import RLS, AutoRanker, BradleyTerry, RankRFM, RankRLS, RankRLSCV, RankSVM, RankSVMCV
from preflearn.kernels import NystromMap
from preflearn.metrics import concordance, ndcg
from preflearn.model_selection import HeldOut, QueryKFold, cross_val_predict, estimate_auc
from preflearn.preprocessing import QueryRelative, TableEncoder
from preflearn.relations import KroneckerRLS

X, y, qid = np.zeros((4, 2)), np.arange(4.0), np.array([0, 0, 1, 1])
pairs = np.array([[0, 1]])

ranker = RankRLS(alpha=1.0, kernel="rbf").fit(X, y, qid=qid)
assert_type(ranker, RankRLS)
assert_type(RankRLS().fit_pairs(X, pairs), RankRLS)
assert_type(RLS().fit(X, y), RLS)
assert_type(RankSVM().fit(X, y, qid=qid), RankSVM)
assert_type(RankRLSCV().fit(X, y, qid=qid), RankRLSCV)
assert_type(RankSVMCV().fit_pairs(X, pairs), RankSVMCV)
assert_type(RankRFM().fit(X, y, qid=qid), RankRFM)
assert_type(AutoRanker().fit(X, y, qid=qid), AutoRanker)
assert_type(BradleyTerry().fit_pairs(X, pairs), BradleyTerry)
assert_type(KroneckerRLS().fit(X, X, np.zeros((4, 4))), KroneckerRLS)
assert_type(NystromMap("rbf").fit(X), NystromMap)
assert_type(QueryRelative().fit(X, qid=qid), QueryRelative)
assert_type(TableEncoder().fit(X), TableEncoder)


class MyRanker(RankRLS):
    pass


assert_type(MyRanker().fit(X, y), MyRanker)

best: int = int(ranker.rank(X, qid=qid)[0])
quality: float = concordance(y, ranker.predict(X), qid) + ndcg(y, ranker.predict(X), qid) + ranker.score(X, y, qid=qid)
held_out = cross_val_predict(ranker, X, y, qid=qid, cv=QueryKFold(2))
low: float = estimate_auc(ranker, X, y).interval[0]
HeldOut(ranker, X, y, qid=qid).predict("leave-query-out", alphas=[1.0])
"""


def test_a_strict_type_checker_knows_what_fit_returns(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    # The library as it is installed: found on the path, its own errors not looked at.
    lines = ["[mypy]", f"mypy_path = {ROOT / 'src'}", "follow_imports = silent"]
    lines += ["[mypy-sklearn.*]", "ignore_missing_imports = True"]
    (tmp_path / "mypy.ini").write_text("\n".join(lines))
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file", "mypy.ini", "program.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
