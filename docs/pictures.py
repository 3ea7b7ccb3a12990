"""The pictures at the top of the guide's pages, drawn by the library from data it makes or from benchmark results.

python docs/pictures.py            # all, into docs/_static/guide
python docs/pictures.py metrics    # one
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS.parent / "benchmarks" / "results"
BLUE, ORANGE, GREEN, GREY = "#2a6fbb", "#d9822b", "#3a9160", "#8a8f98"
STYLE = {
    "font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "axes.titlesize": 9.5,
    "svg.fonttype": "none", "svg.hashsalt": "preflearn", "legend.frameon": False, "figure.constrained_layout.use": True,
}  # fmt: skip

PICTURES: dict[str, Callable[[], Any]] = {}


def picture(draw: Callable[[], Any]) -> Callable[[], Any]:
    """Enter a function that returns a figure under its name, which is that of the page."""
    PICTURES[draw.__name__] = draw
    return draw


def demo() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The embedded data, standardised."""
    from sklearn.preprocessing import StandardScaler

    from preflearn.datasets import load_demo

    X, y, qid, _ = load_demo()
    return StandardScaler().fit_transform(X), y, qid


@picture
def automatic():
    from preflearn import AutoRanker

    X, y, qid = demo()
    board = AutoRanker(random_state=0).fit(X, y, qid=qid).leaderboard_
    entries = sorted((entry for entry in board if entry.score > 0), key=lambda entry: entry.score)
    figure, ax = plt.subplots(figsize=(6.4, 2.8))
    ax.barh([entry.name for entry in entries], [entry.score for entry in entries], color=BLUE)
    ax.set(xlim=(0.5, None), xlabel="held-out concordance of each candidate of AutoRanker")
    return figure


@picture
def ratings():
    from preflearn import rate

    rng = np.random.default_rng(0)
    names, strength = (
        np.array(["ada", "bo", "cy", "di", "eve", "flo"]),
        np.array([1.2, 0.6, 0.5, 0.0, -0.8, -1.5]),
    )
    a = rng.integers(0, 6, 600)
    b = (a + rng.integers(1, 6, 600)) % 6
    won = rng.random(600) < 1 / (1 + np.exp(-(strength[a] - strength[b])))
    battles = {"model_a": names[a], "model_b": names[b], "winner": np.where(won, "model_a", "model_b")}
    found = rate(battles)
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.4))
    found.plot("ratings", ax=axes[0])
    found.plot("ranks", ax=axes[1])
    return figure


@picture
def score_tables():
    from preflearn import leaderboard

    rng = np.random.default_rng(0)
    skill, hard = np.array([2.0, 1.8, 1.7, 1.0, 0.0]), rng.normal(0, 2, 12)
    scores = {"model": ["ada", "bo", "cy", "di", "eve"]}
    for task in range(12):
        scores[f"task {task + 1}"] = 50 + 4 * skill + 4 * hard[task] + 2 * rng.normal(size=5)
    board = leaderboard(scores)
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.2), sharey=True)
    y = np.arange(5)
    for ax, (middle, low, high, what) in zip(
        axes,
        (
            ("mean", "lower", "upper", "mean over tasks, with its interval"),
            ("rank", "rank_lower", "rank_upper", "rank, all intervals together"),
        ),
        strict=True,
    ):
        sides = [board[middle] - board[low], board[high] - board[middle]]
        ax.errorbar(board[middle], y, xerr=sides, fmt="o", color=BLUE)
        ax.set(xlabel=what, yticks=y, yticklabels=board["item"])
    axes[0].invert_yaxis()
    return figure


@picture
def clicks():
    from preflearn.preferences import position_propensities

    rng = np.random.default_rng(0)
    items = rng.normal(size=(200, 12, 4))
    utility = items @ [1.0, -1.0, 0.5, 0.0]
    old = 0.7 * utility + 0.7 * rng.normal(size=(20, 200, 12))  # the better, the higher
    item = np.argsort(-old, axis=2)[:, :, :10]
    likes = 1 / (1 + np.exp(2 - 1.5 * np.take_along_axis(np.broadcast_to(utility, old.shape), item, axis=2)))
    clicked = (rng.random(item.shape) < 1 / np.arange(1, 11)) & (rng.random(item.shape) < likes)
    query = np.broadcast_to(np.arange(200)[None, :, None], item.shape).ravel()
    position = np.broadcast_to(np.arange(1, 11), item.shape).ravel()
    found = position_propensities(position, clicked.ravel(), query=query, item=item.ravel())
    return propensities_figure(found.values, clicked.mean(axis=(0, 1)), 10)


def propensities_figure(found: np.ndarray, rates: np.ndarray, n_shown: int):
    """Estimated propensities beside the true ones and the click rates."""
    places = np.arange(1, n_shown + 1)
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    ax.plot(places, 1 / places, color=GREY, lw=4, alpha=0.5, label="true: 1 / position")
    ax.plot(places, found[:n_shown], "o-", color=BLUE, label="estimated by position_propensities")
    ax.plot(places, rates / rates[0], "s--", color=ORANGE, label="click rate, relative to the first")
    ax.set(xlabel="position in the list", ylabel="how often it is looked at", ylim=(0, 1.05))
    ax.legend()
    return figure


@picture
def comparisons():
    from preflearn.comparisons import PreferenceComparisons, compare_scores, encode_queries

    y = np.array([2.0, 1, 0, 1, 0, 0])[:, None]
    kinds = {
        "one global ranking": compare_scores(y, encode_queries(np.zeros(6), 6)),
        "two queries of three rows": compare_scores(y, encode_queries(np.repeat([0, 1], 3), 6)),
        "three preferences": PreferenceComparisons(6, np.array([[0, 1], [1, 2], [3, 5]])),
    }
    figure, axes = plt.subplots(1, 3, figsize=(7.2, 2.6))
    for ax, (title, kind) in zip(axes, kinds.items(), strict=True):
        L = kind.laplacian(np.eye(6))
        largest = np.abs(L).max()
        ax.imshow(L, cmap="RdBu_r", vmin=-largest, vmax=largest)
        ax.set(title=title, xticks=[], yticks=[])
        for (i, j), value in np.ndenumerate(L):
            if value:
                dark = abs(value) > 0.8 * largest
                ax.text(
                    j,
                    i,
                    f"{value:g}",
                    ha="center",
                    va="center",
                    fontsize=7,
                    color="white" if dark else "black",
                )
    figure.suptitle("the matrix L of fᵀLf: which of six rows are compared", fontsize=9.5)
    return figure


@picture
def cross_validation():
    from preflearn import RankRLS, RankRLSCV
    from preflearn.metrics import concordance

    X, y, qid = demo()
    alphas = 2.0 ** np.arange(-12, 13)
    search = RankRLSCV(alphas, kernel="rbf", gamma=0.1).fit(X, y, qid=qid)
    trained = [
        concordance(y, RankRLS(a, kernel="rbf", gamma=0.1).fit(X, y, qid=qid).predict(X), qid) for a in alphas
    ]
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    ax.semilogx(alphas, trained, "--", color=GREY, label="on the training rows")
    ax.semilogx(alphas, search.cv_scores_, "o-", color=BLUE, ms=3, label="every query left out, by algebra")
    ax.axvline(search.alpha_, color=ORANGE, lw=1, label="chosen alpha")
    ax.set(xlabel="alpha", ylabel="concordance")
    ax.legend()
    return figure


@picture
def graphs():
    points = {"binds": (0, 0), "PROT1": (-1, -0.8), "to": (1, -0.8), "PROT2": (1.9, -1.6)}
    edges = {("binds", "PROT1"): "nsubj 0.9", ("binds", "to"): "prep 0.9", ("to", "PROT2"): "pobj 0.9"}
    figure, ax = plt.subplots(figsize=(5.6, 2.4))
    for (a, b), label in edges.items():
        ax.annotate(
            "",
            points[b],
            points[a],
            arrowprops={"arrowstyle": "->", "color": GREY, "shrinkA": 16, "shrinkB": 16},
        )
        middle = np.mean([points[a], points[b]], axis=0)
        ax.text(
            *(middle + [0.15, 0.15]), label, fontsize=8, color=GREY, ha="left" if b != "PROT1" else "right"
        )
    for word, place in points.items():
        colour = ORANGE if word.startswith("PROT") else BLUE
        ax.text(
            *place,
            word,
            ha="center",
            va="center",
            color="white",
            bbox={"boxstyle": "round", "fc": colour, "ec": "none"},
        )
    ax.set(xlim=(-1.6, 2.5), ylim=(-2, 0.4))
    ax.axis("off")
    return figure


@picture
def kernels():
    from preflearn import RankRLS

    rng = np.random.default_rng(0)
    x = np.sort(rng.uniform(-3, 3, 40))
    y, grid = np.sin(1.5 * x) + 0.3 * rng.normal(size=40), np.linspace(-3.4, 3.4, 200)
    settings = {
        "linear": {}, "poly, degree 3": {"kernel": "poly", "degree": 3, "gamma": 0.3, "coef0": 1.0},
        "rbf": {"kernel": "rbf", "gamma": 1.0}, "matern, ν = 0.5": {"kernel": "matern", "gamma": 1.0},
    }  # fmt: skip
    figure, axes = plt.subplots(1, 4, figsize=(8, 2.2), sharey=True)
    for ax, (title, options) in zip(axes, settings.items(), strict=True):
        model = RankRLS(1.0, **options).fit(x[:, None], y)
        shift = np.mean(y - model.predict(x[:, None]))  # a ranking knows no constant
        ax.plot(x, y, ".", color=GREY, ms=4)
        ax.plot(grid, model.predict(grid[:, None]) + shift, color=BLUE)
        ax.set(title=title, ylim=(-2, 2), xticks=[])
    return figure


@picture
def learners():
    d = np.linspace(-2, 3, 200)
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    ax.plot(d, (1 - d) ** 2, color=BLUE, label="RankRLS: (1 - d)²")
    ax.plot(d, np.maximum(0, 1 - d) ** 2, color=GREEN, label="RankSVM, squared hinge")
    ax.plot(d, np.maximum(0, 1 - d), color=GREEN, ls="--", label="RankSVM, hinge")
    ax.plot(d, np.log1p(np.exp(-d)), color=ORANGE, label="BradleyTerry: log(1 + e⁻ᵈ)")
    ax.axvline(0, color=GREY, lw=0.8)
    ax.set(ylim=(0, 4), xlabel="d = f(better) - f(worse)", ylabel="loss of a pair")
    ax.legend()
    return figure


@picture
def little_supervision():
    from preflearn import OrderPreferenceRegressor
    from preflearn.preferences import Preferences

    def cubic(x: np.ndarray) -> np.ndarray:
        return 4 * x**3 - 1.5 * x

    known, grid = np.array([-0.9, 0.15, 0.75]), np.linspace(-1, 1, 201)
    pairs = np.random.default_rng(0).uniform(-1, 1, size=(20, 2))
    pairs = np.where((cubic(pairs[:, 0]) < cubic(pairs[:, 1]))[:, None], pairs[:, ::-1], pairs)
    points, y = np.concatenate([known, pairs.ravel()]), np.concatenate([cubic(known), np.full(40, np.nan)])
    options: dict[str, Any] = {"alpha": 0.0, "kernel": "poly", "degree": 3, "gamma": 1.0}
    alone = OrderPreferenceRegressor(**options).fit(known[:, None], cubic(known))
    rows = 3 + np.arange(40).reshape(-1, 2)
    helped = OrderPreferenceRegressor(**options).fit(points[:, None], y, pairs=Preferences(rows))
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    ax.plot(grid, cubic(grid), color=GREY, lw=4, alpha=0.5, label="truth")
    ax.plot(known, cubic(known), "ko", ms=5, label="three labels")
    ax.plot(grid, alone.predict(grid[:, None]), "--", color=ORANGE, label="from the labels alone")
    ax.plot(
        grid, helped.predict(grid[:, None]), color=BLUE, label='and 20 statements "higher here than there"'
    )
    ax.set(ylim=(-3, 3), xlabel="x")
    ax.legend(fontsize=8)
    return figure


@picture
def metrics():
    from preflearn.metrics import concordance, err, ndcg

    y = np.array([3, 2, 2, 1, 1, 0, 0, 0, 0, 0], dtype=float)
    measures = {"concordance": concordance, "ndcg": ndcg, "err": err}
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    places = np.arange(9)
    for (name, measure), colour in zip(measures.items(), (BLUE, ORANGE, GREEN), strict=True):
        lost = []
        for k in places:
            scores = -np.arange(10.0)
            scores[[k, k + 1]] = scores[[k + 1, k]]
            lost.append(measure(y, -np.arange(10.0)) - measure(y, scores))
        ax.plot(places + 1, lost, "o-", color=colour, ms=4, label=name)
    ax.set(xlabel="neighbours swapped: position k and k + 1", ylabel="what the metric loses")
    ax.legend()
    return figure


@picture
def parses():
    words = ["cells", "divide", "rapidly", "in", "culture"]
    links = [(0, 1, "S"), (1, 2, "MV"), (1, 3, "MV"), (3, 4, "J")]
    figure, ax = plt.subplots(figsize=(5.6, 1.9))
    for a, b, label in links:
        t = np.linspace(0, np.pi, 50)
        height = 0.5 * (b - a)
        ax.plot((a + b) / 2 + (b - a) / 2 * np.cos(t), height * np.sin(t), color=BLUE)
        ax.text((a + b) / 2, height + 0.05, label, ha="center", color=BLUE, fontsize=8)
    for place, word in enumerate(words):
        ax.text(place, -0.22, word, ha="center")
    ax.set(ylim=(-0.4, 1.3))
    ax.axis("off")
    return figure


@picture
def probabilities():
    from preflearn import BradleyTerry

    rng = np.random.default_rng(1)
    truth = np.linspace(-2, 2, 9)
    pairs = np.array([rng.choice(9, 2, replace=False) for _ in range(90)])
    won = rng.random(90) < 1 / (1 + np.exp(truth[pairs[:, 1]] - truth[pairs[:, 0]]))
    pairs = np.where(won[:, None], pairs, pairs[:, ::-1])
    model = BradleyTerry(0.25, kernel="items").fit_pairs(np.arange(9), pairs)
    mean, covariance = model.posterior(np.arange(9))
    spread = 1.96 * np.sqrt(np.diagonal(covariance))
    figure, ax = plt.subplots(figsize=(5.6, 2.8))
    ax.errorbar(
        mean,
        np.arange(9),
        xerr=spread,
        fmt="o",
        color=BLUE,
        ecolor=GREY,
        capsize=2,
        label="after 90 answers, 95 %",
    )
    ax.plot(truth - truth.mean(), np.arange(9), "|", color=ORANGE, ms=14, mew=2, label="truth")
    ax.set(yticks=range(9), yticklabels=list("ABCDEFGHI"), xlabel="latent score")
    ax.legend(fontsize=8)
    return figure


@picture
def reduced_sets():
    from preflearn import RankRLS
    from preflearn.metrics import concordance

    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(6000, 4)), np.arange(6000) // 20
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    y, train = f + 0.3 * rng.normal(size=6000), qid < 200
    sizes = [10, 20, 50, 100, 200, 500, 1000]
    scores = []
    for r in sizes:
        model = RankRLS(1.0, kernel="rbf", gamma=0.3, n_basis=r, random_state=0).fit(
            X[train], y[train], qid=qid[train]
        )
        scores.append(concordance(y[~train], model.predict(X[~train]), qid[~train]))
    full = RankRLS(1.0, kernel="rbf", gamma=0.3).fit(X[train], y[train], qid=qid[train])
    figure, ax = plt.subplots(figsize=(5.6, 2.6))
    ax.semilogx(sizes, scores, "o-", color=BLUE, label="n_basis = r")
    ax.axhline(
        concordance(y[~train], full.predict(X[~train]), qid[~train]),
        color=GREY,
        ls="--",
        label="all 4,000 rows",
    )
    ax.set(xlabel="basis vectors", ylabel="concordance of new queries")
    ax.legend()
    return figure


@picture
def relations():
    from preflearn.relations import KroneckerRLS

    rng = np.random.default_rng(0)
    drugs, targets = rng.normal(size=(30, 3)), rng.normal(size=(40, 3))
    Y = np.tanh(drugs @ rng.normal(size=(3, 3)) @ targets.T)
    rows, columns = np.arange(24), np.arange(32)
    model = KroneckerRLS(0.1, row_kernel="rbf", column_kernel="rbf").fit(
        drugs[rows], targets[columns], Y[:24, :32]
    )
    known = Y.copy()
    known[24:], known[:, 32:] = np.nan, np.nan
    predicted = np.asarray(model.predict(drugs, targets)).reshape(30, 40)
    figure, axes = plt.subplots(1, 3, figsize=(7.6, 2.2))
    for ax, matrix, title in zip(
        axes,
        (known, predicted, Y),
        ("labels that are known", "predicted, new objects too", "truth"),
        strict=True,
    ):
        ax.imshow(matrix, cmap="RdBu_r", vmin=-1, vmax=1)
        ax.set(title=title, xticks=[], yticks=[])
    axes[0].set(ylabel="drugs", xlabel="targets")
    return figure


@picture
def several_kernels():
    from preflearn.multiple_kernels import MultipleKernelRankRLS

    rng = np.random.default_rng(0)
    views = {
        "table": rng.normal(size=(80, 3)),
        "spectrum": rng.normal(size=(80, 20)),
        "noise": rng.normal(size=(80, 4)),
    }
    y = views["table"] @ [1.0, -1.0, 0.5] + 0.3 * views["spectrum"][:, 0] + 0.2 * rng.normal(size=80)
    model = MultipleKernelRankRLS(
        {"table": "linear", "spectrum": ("rbf", {"gamma": 0.05}), "noise": "linear"}
    )
    model.fit(views, y, qid=np.repeat(np.arange(8), 10))
    figure, ax = plt.subplots(figsize=(5.6, 1.6))
    ax.barh(list(model.weights_), list(model.weights_.values()), color=BLUE)
    ax.set(xlabel="learned weight of each kernel")
    ax.invert_yaxis()
    return figure


@picture
def speed():
    results = json.loads((RESULTS / "growth.json").read_text())["results"]
    figure, ax = plt.subplots(figsize=(6.4, 3.2))
    chosen = [case for case in results if "rows" in case["axes"]][:6]
    for case in chosen:
        axis = case["axes"]["rows"]
        ax.loglog(axis["values"], axis["seconds"], "o-", ms=3, label=case["question"])
    ax.set(xlabel="rows", ylabel="seconds, 2 cores")
    ax.legend(fontsize=7)
    return figure


@picture
def pairs_across_queries():
    """Section 5.1 of the article on RankRLS: `tests/test_papers_page.py` checks the two slopes."""
    from preflearn import RankRLS

    X, scores = np.array([[2.5], [2.0], [0.5], [0.0]]), np.array([2.0, 1.0, 4.0, 3.0])
    figure, axes = plt.subplots(1, 2, figsize=(7.2, 2.4), sharey=True)
    for ax, qid, title in zip(axes, ([1, 1, 2, 2], None), ("pairs inside queries", "all pairs"), strict=True):
        model = RankRLS(0.01).fit(X, scores, qid=qid)
        ends = np.array([[-0.2], [2.7]])
        ax.plot(ends, model.predict(ends - X.mean()) + scores.mean(), color=GREY, lw=1.5)
        for rows, colour, label in (([0, 1], BLUE, "query 1"), ([2, 3], ORANGE, "query 2")):
            ax.plot(X[rows, 0], scores[rows], "o-", color=colour, label=label)
        ax.set(title=f"{title}: slope {model.coef_[0]:+.2f}", xlabel="feature")
    axes[0].set(ylabel="score")
    axes[0].legend()
    return figure


@picture
def tuning_gamma():
    from preflearn import RankRLSCV

    X, y, qid = demo()
    gammas, alphas = 10.0 ** np.arange(-4, 2.1, 0.5), 2.0 ** np.arange(-10, 11, 2)
    scores = [RankRLSCV(alphas, kernel="rbf", gamma=gamma).fit(X, y, qid=qid).cv_scores_ for gamma in gammas]
    figure, ax = plt.subplots(figsize=(5.6, 3))
    mesh = ax.pcolormesh(
        gammas, alphas, np.array(scores).T, cmap="viridis", shading="nearest", rasterized=True
    )
    ax.set(xscale="log", yscale="log", xlabel="gamma", ylabel="alpha")
    figure.colorbar(mesh, label="held-out concordance")
    return figure


def main(names: list[str]) -> None:
    """Draw the named pictures, or all."""
    warnings.simplefilter("ignore")
    folder = DOCS / "_static" / "guide"
    folder.mkdir(exist_ok=True)
    with mpl.rc_context(STYLE):
        for name in names or PICTURES:
            figure = PICTURES[name]()
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
            plt.close(figure)
            print(folder / f"{name}.svg")


if __name__ == "__main__":
    main(sys.argv[1:])
