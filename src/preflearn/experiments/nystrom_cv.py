r"""What it costs to keep held-out basis vectors in the model: the first half of the experiments of NPL11.

A reduced set f(x) = Σ_{i∈R} β_i k(x, x_i) takes its basis vectors R from the training rows. When a group of rows is
held out, basis vectors among them must leave as well: they lie next to the test rows, where the remaining training
rows say little about their coefficients, so that with little regularisation f is wild exactly where it is tested.

Protocol: rows come in groups of similar ones, two basis vectors from each group, ten folds of whole groups, RLS, mean
squared error, λ from 10⁻⁹ to 10⁹, with the basis vectors of the held-out rows left in or taken out.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..comparisons import Groups, encode_queries
from ..estimators.rls import RLS
from ..kernels.maps import NystromMap
from ..model_selection.cross_validation import cross_val_predict
from ..model_selection.splitters import QueryKFold
from .report import ExperimentReport

ALPHAS = tuple(10.0**k for k in range(-9, 10))


def run(
    *,
    data: str | Path | None = None,
    alphas: Sequence[float] = ALPHAS,
    n_groups: int = 120,
    n_features: int = 8,
    basis_per_group: int = 2,
    n_splits: int = 10,
    seed: int = 0,
    verbose: int = 0,
) -> ExperimentReport:
    """Estimate the error with held-out basis vectors left in and taken out.

    Parameters
    ----------
    data : path, optional
        A folder that holds ``ppi_corpora``: candidates of the HPRD50 corpus, grouped by sentence, with the all-paths
        graph kernel. Generated groups without.
    alphas : sequence of float
    n_groups, n_features : int
        Of the generated data; a group has 8 to 20 rows.
    basis_per_group : int, default=2
    n_splits : int, default=10
        Folds of whole groups.
    seed : int, default=0
    verbose : int, default=0

    Returns
    -------
    ExperimentReport
    """
    start = time.perf_counter()
    rng = np.random.default_rng(seed)
    if data is None:
        X, y, groups = _generate(n_groups, n_features, rng)
        kernel: dict[str, Any] = {"kernel": "rbf", "gamma": 1.0 / n_features}
        source = f"{y.shape[0]} generated rows in {groups.n_groups} groups, RBF kernel"
    else:
        X, y, groups = _read_sentences(Path(data))
        kernel = {"kernel": "linear"}
        source = f"{y.shape[0]} candidates of HPRD50 in {groups.n_groups} sentences, all-paths graph kernel"
    basis = _basis_of_groups(groups, basis_per_group, rng)
    folds = [
        test
        for _, test in QueryKFold(n_splits, shuffle=True, random_state=seed).split(
            np.zeros((y.shape[0], 1)), qid=groups.codes
        )
    ]
    features = NystromMap(basis=basis, **kernel).fit_transform(X)
    rows: list[dict[str, Any]] = []
    for alpha in alphas:
        taken_out = cross_val_predict(RLS(alpha, basis=basis, **kernel), X, y, cv=folds)
        # The map is made once on all rows, and what is held out afterwards stays in it.
        left_in = cross_val_predict(RLS(alpha), features, y, cv=folds)
        errors = [float(np.mean((y - f) ** 2)) for f in (left_in, taken_out)]
        rows.append(
            {"alpha": alpha, "left in": errors[0], "taken out": errors[1], "ratio": errors[0] / errors[1]}
        )
        if verbose:
            print(
                f"[nystrom-cv] alpha {alpha:g}: {errors[0]:.4g} left in, {errors[1]:.4g} out", file=sys.stderr
            )
    return ExperimentReport(
        name="nystrom-cv",
        title="Held-out basis vectors left in the model, or taken out",
        protocol=(
            f"{source}, {basis.shape[0]} basis vectors ({basis_per_group} per group), {n_splits} folds of whole "
            "groups, RLS, mean squared error. The parse rankings of the publication are not available."
        ),
        published=(
            "left in: almost 4 times the error at small λ, no difference at large λ (Airola, Pahikkala and Salakoski, "
            "Neural Processing Letters 33, 2011, Figure 1)."
        ),
        columns=("alpha", "left in", "taken out", "ratio"),
        rows=rows,
        findings=_findings(rows),
        seconds=time.perf_counter() - start,
        settings={
            "data": None if data is None else "ppi_corpora",
            "alphas": list(alphas),
            "n_groups": groups.n_groups,
            "basis_per_group": basis_per_group,
            "n_splits": n_splits,
            "seed": seed,
        },
        draw=_draw,
    )


def _generate(
    n_groups: int, n_features: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, Groups]:
    """Groups of similar rows: a centre each, and variations around it; y depends on both, with noise."""
    sizes = rng.integers(8, 21, size=n_groups)
    owner = np.repeat(np.arange(n_groups), sizes)
    centres = 1.5 * rng.normal(size=(n_groups, n_features))
    X = centres[owner] + 0.4 * rng.normal(size=(owner.shape[0], n_features))
    w = rng.normal(size=n_features) / np.sqrt(n_features)
    y = np.tanh(X @ w) + 0.3 * np.sin(X[:, 0]) + 0.3 * rng.normal(size=owner.shape[0])
    return X, y, encode_queries(owner, owner.shape[0])


def _read_sentences(folder: Path) -> tuple[Any, np.ndarray, Groups]:
    from ..graphs import AllPathsFeatures
    from ..ppi import candidates, read_corpus

    path = folder / "ppi_corpora" / "HPRD50-learning-format.xml.xz"
    if not path.is_file():
        raise FileNotFoundError(
            f"nystrom-cv reads {path.relative_to(folder)} and found no such file in {folder}: leave data out for "
            "generated groups."
        )
    found = candidates(read_corpus(path))
    X = AllPathsFeatures("max", normalize=True).fit_transform(found.graphs)
    sentences = [item.sentence.id for item in found.items]
    return X, np.where(np.asarray(found.labels) > 0, 1.0, -1.0), encode_queries(sentences, len(sentences))


def _basis_of_groups(groups: Groups, per_group: int, rng: np.random.Generator) -> np.ndarray:
    drawn = [
        rng.choice(groups.rows(group), size=min(per_group, int(groups.counts[group])), replace=False)
        for group in range(groups.n_groups)
    ]
    return np.sort(np.concatenate(drawn))


def _findings(rows: list[dict[str, Any]]) -> list[str]:
    worst = max(rows, key=lambda row: row["ratio"])
    smallest, largest = rows[0], rows[-1]
    best_in, best_out = (min(rows, key=lambda row: row[key]) for key in ("left in", "taken out"))
    return [
        f"largest ratio {worst['ratio']:.2f}, at alpha = {worst['alpha']:g}; {smallest['ratio']:.2f} at the smallest "
        f"alpha, {largest['ratio']:.3f} at the largest",
        f"alpha chosen: {best_in['alpha']:g} with basis vectors left in, {best_out['alpha']:g} with them taken out",
    ]


def _draw(report: ExperimentReport, axes: Any = None) -> Any:
    if axes is None:
        import matplotlib.pyplot as plt

        _, axes = plt.subplots(figsize=(5.2, 3.4), layout="constrained")
    alphas = [row["alpha"] for row in report.rows]
    axes.semilogx(alphas, [row["left in"] for row in report.rows], "o-", ms=3, color="C3", label="left in")
    axes.semilogx(
        alphas, [row["taken out"] for row in report.rows], "o-", ms=3, color="C0", label="taken out"
    )
    axes.set_xlabel("alpha")
    axes.set_ylabel("estimated mean squared error")
    axes.set_ylim(bottom=0)
    axes.legend(title="held-out basis vectors", loc="upper right")
    return axes.figure
