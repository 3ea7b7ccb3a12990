"""Training time of nonlinear RankRLS against explicit pairs: Table 1 of the RankRLS article.

Topic acq of Reuters-21578, Gaussian kernel, 200 to 6000 documents. The rivals learn the kernel RankSVM the direct way,
as a support vector machine over the differences z_i - z_j of all pairs, with K = Z Zᵀ: the number of pairs grows with
the square of the number of documents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.svm import SVC, LinearSVC

from preflearn import RankRLS, RankSVM
from preflearn.kernels import NystromMap
from preflearn.metrics import auc

from .data import read_newswire
from .report import ExperimentReport
from .resume import Resume, settings_of

SIZES = (200, 500, 750, 1000, 1500, 2000, 2500, 4000, 6000)
# inputs → RankRLS, SVMlight's RankSVM, seconds
_PUBLISHED = {
    200: (1, 2),
    500: (3, 150),
    750: (5, 579),
    1000: (10, 1740),
    1500: (24, 4685),
    2000: (48, 13707),
    2500: (83, 20055),
    4000: (280, None),
    6000: (841, None),
}
_GAMMA = 1.0
# λ of RankRLS, and of RankSVM: the same problem as C = 1 of a support vector machine.
_ALPHA, _SVM_ALPHA = 1.0, 0.5
_N_TEST = 2000
# Differences that are written down at most, in bytes.
_MEMORY = 3e9
# How the time grows with the number of documents: SMO takes steps in proportion to the pairs, each over all pairs.
_GROWTH = {"RankRLS": 3, "RankSVM, squared hinge": 3, "RankSVM, hinge": 3, "LinearSVC": 4, "SVC": 5}


def run(
    *, data: str | Path | None = None, sizes: Sequence[int] = SIZES, limit: float = 60.0, seed: int = 0,
    verbose: int = 0, resume: str | Path | None = None,
) -> ExperimentReport:  # fmt: skip
    """Training times on the topic acq of Reuters-21578.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of training documents, from small to large.
    limit : float, default=60
        Seconds: a rival is left out from the size on at which it can be expected to take longer, by its last time.
    seed : int, default=0
        Of the documents.
    data, verbose, resume : as in every experiment (`preflearn_experiments.registry`)
    """
    settings = settings_of(sizes=sizes, limit=limit, seed=seed)
    work = Resume(resume, "runtime", settings, total=len(sizes), verbose=verbose)
    documents = read_newswire(data, "runtime")
    y = documents.labels(["acq"])[:, 0]
    order = np.random.default_rng(seed).permutation(y.shape[0])
    test = order[-min(_N_TEST, y.shape[0] // 2) :]
    if max(sizes) > y.shape[0] - test.shape[0]:
        raise ValueError(
            f"{max(sizes)} training documents were asked for, and beside {test.shape[0]} for the test there "
            f"are {y.shape[0] - test.shape[0]}."
        )
    rows: list[dict[str, Any]] = []
    for size in sizes:
        learners = [name for name in _GROWTH if name == "RankRLS" or _expected(rows, name, size) <= limit]
        compute = partial(_one, documents.texts, y, order[:size], test, learners)
        rows.append(work.unit(f"{size} documents", compute))
    table = [_row(row) for row in rows]
    return work.report(
        title="Training time of nonlinear rankers",
        protocol=(
            f"Topic acq of Reuters-21578, tf-idf features, Gaussian kernel with γ = {_GAMMA:g}. RankRLS (λ = "
            f"{_ALPHA:g}) and RankSVM (λ = {_SVM_ALPHA:g}) of the library, from the features to the model: "
            "RankRLS at one λ is a Cholesky factorisation. Explicit pairs, RankSVM's problem with hinge "
            "loss: scikit-learn's SVC (SMO, as in SVMlight, which is not used here) and LinearSVC (dual "
            "coordinate descent) on the differences of a positive and a negative document in a factor of the "
            f"kernel matrix, as long as {limit:g} s can be expected to suffice and the differences fit in "
            f"{_MEMORY / 1e9:g} GB. AUC on {test.shape[0]} other documents. Seconds on the machine at hand, "
            "the best of three runs where it is over quickly: compare columns, not years."
        ),
        published=(
            "2500 inputs: RankRLS 83 s, SVMlight's RankSVM 20055 s (Pahikkala et al., Machine Learning 75, "
            "2009, Table 1, on the hardware of 2009)."
        ),
        columns=(
            "inputs",
            "pairs",
            "published RankRLS",
            "published RankSVM",
            *_GROWTH,
            "LinearSVC / RankRLS",
            "AUC RankRLS",
            "AUC RankSVM, hinge",
            "AUC LinearSVC",
        ),
        rows=table,
        findings=_findings(table),
        draw=_draw,
    )


def _expected(rows: list[dict[str, Any]], name: str, size: int) -> float:
    """Seconds that a learner may need, from the size before."""
    if not rows:
        return 0.0
    last = rows[-1]
    return np.inf if last[name] is None else last[name] * (size / last["inputs"]) ** _GROWTH[name]


def _one(
    texts: Sequence[str], y: np.ndarray, train: np.ndarray, test: np.ndarray, learners: Sequence[str]
) -> dict[str, Any]:
    """Times of some learners, and how well they order the test documents."""
    words = TfidfVectorizer(sublinear_tf=True)
    X = words.fit_transform([texts[row] for row in train])
    X_test = words.transform([texts[row] for row in test])
    y_train = y[train]
    n_pairs = int(y_train.sum() * (1 - y_train).sum())
    found: dict[str, Any] = {"inputs": train.shape[0], "pairs": n_pairs}
    for name in _GROWTH:
        found[name] = found[f"AUC {name}"] = None
        explicit = name.endswith("SVC")
        if name not in learners or (explicit and 8.0 * n_pairs * train.shape[0] > _MEMORY):
            continue
        learn = partial(_explicit_pairs if explicit else _ours, name)
        # Once on a few documents: what is loaded or compiled on first use is not training.
        few = np.concatenate([np.flatnonzero(y_train == label)[:10] for label in (0, 1)])
        learn(X[few], y_train[few])
        found[name], predict = _timed(learn, X, y_train)
        found[f"AUC {name}"] = auc(y[test], predict(X_test))
    return found


def _timed(learn: Callable[..., Any], X: Any, y: np.ndarray) -> tuple[float, Any]:
    """Seconds, the best of three where it is over quickly, and the result."""
    times: list[float] = []
    while len(times) < 3 and sum(times) < 1.0:
        start = time.perf_counter()
        learned = learn(X, y)
        times.append(time.perf_counter() - start)
    return min(times), learned


def _ours(name: str, X: Any, y: np.ndarray) -> Callable[[Any], np.ndarray]:
    if name == "RankRLS":
        return RankRLS(_ALPHA, kernel="rbf", gamma=_GAMMA).fit(X, y).predict
    loss = name.rpartition(", ")[2].replace(" ", "_")
    return RankSVM(_SVM_ALPHA, loss=loss, kernel="rbf", gamma=_GAMMA).fit(X, y).predict


def _explicit_pairs(name: str, X: Any, y: np.ndarray) -> Callable[[Any], np.ndarray]:
    """Kernel RankSVM over every pair, written down; returns the scores of other documents.

    A support vector machine needs two classes: every second difference is turned round.
    """
    factor = NystromMap("rbf", gamma=_GAMMA, basis=np.arange(X.shape[0])).fit(X)
    Z = factor.transform(X)
    above, below = np.meshgrid(np.flatnonzero(y > 0), np.flatnonzero(y == 0))
    sign = np.where(np.arange(above.size) % 2 == 0, 1.0, -1.0)
    differences = Z[above.ravel()] - Z[below.ravel()]
    differences *= sign[:, None]
    machine: Any = SVC(kernel="linear", cache_size=500)
    if name == "LinearSVC":
        machine = LinearSVC(loss="hinge", fit_intercept=False, max_iter=10_000)
    weights = machine.fit(differences, sign).coef_[0]
    return lambda rows: factor.transform(rows) @ weights


def _row(found: dict[str, Any]) -> dict[str, Any]:
    published = _PUBLISHED.get(found["inputs"], (None, None))
    row = {"inputs": found["inputs"], "pairs": found["pairs"]}
    row |= {"published RankRLS": published[0], "published RankSVM": published[1]}
    row |= {
        name: found[name]
        for name in (*_GROWTH, *(f"AUC {name}" for name in ("RankRLS", "RankSVM, hinge", "LinearSVC")))
    }
    for name in ("SVC", "LinearSVC"):
        row[f"{name} / RankRLS"] = None if found[name] is None else found[name] / found["RankRLS"]
    return row


def _findings(table: list[dict[str, Any]]) -> list[str]:
    said = []
    for name in ("SVC", "LinearSVC"):
        measured = [row for row in table if row[name] is not None]
        if measured:
            last = measured[-1]
            said.append(
                f"explicit pairs with {name}, the most documents that were tried ({last['inputs']}): "
                f"{last[name]:.3g} s against {last['RankRLS']:.3g} s, {last[f'{name} / RankRLS']:.3g} times as long"
            )
    last = table[-1]
    said.append(f"RankRLS with {last['inputs']} documents: {last['RankRLS']:.3g} s")
    return said


def _draw(report: ExperimentReport, axes: Any = None) -> Any:
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(5.4, 3.6), layout="constrained")
    lines = {
        "RankRLS": ("C0", "o-"),
        "RankSVM, squared hinge": ("C2", "o-"),
        "RankSVM, hinge": ("C4", "o-"),
        "LinearSVC": ("C1", "o-"),
        "SVC": ("C3", "o-"),
        "published RankRLS": ("C0", "x:"),
        "published RankSVM": ("C3", "x:"),
    }
    for name, (color, style) in lines.items():
        points = [(row["inputs"], row[name]) for row in report.rows if row[name] is not None]
        if points:
            axes.loglog(*zip(*points, strict=True), style, ms=4, color=color, label=name)
    axes.set_xlabel("training documents")
    axes.set_ylabel("seconds")
    axes.legend(fontsize="small")
    return axes.figure
