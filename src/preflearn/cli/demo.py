"""``preflearn demo``: learn to rank the search results of a fictitious shop.

Trains on some queries, measures on the others, and shows what comparing items within their query gains over
regression on all rows together.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from . import files

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console

    from ..tables.shop import DemoData

_ALPHAS = (0.1, 1.0, 10.0, 100.0)
_SHOWN_FEATURES = ("title_match", "price_ratio", "rating", "delivery_days")


def demo(
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object instead of tables.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Other data and another split of the queries.")] = 0,
    write: Annotated[
        Path | None,
        typer.Option(
            "--write", help="Write the data to this CSV file instead, to try the other commands on."
        ),
    ] = None,
    force: files.ForceOption = False,
) -> None:
    """Train on embedded data, show how good the ranking is and what to try next."""
    from rich.console import Console

    console = Console()
    if write is not None:
        if as_json:
            raise ValueError("--write writes a table and --json prints figures: give one of them.")
        _write(write, seed, force)
        return
    if force:
        raise ValueError("--force goes with --write FILE: leave it out.")
    if as_json:
        print(json.dumps(_learn(seed), indent=2))
        return
    with console.status("Learning to rank ..."):
        result = _learn(seed)
    _show(console, result)


def _write(path: Path, seed: int, force: bool) -> None:
    """The embedded data as a table: the grade, the session and the name of each item, and its features."""
    from ..tables.atomic import write_whole
    from ..tables.shop import load_demo
    from ..tables.writing import csv_text

    data = load_demo(random_state=seed)
    rows = (
        [session, f"item {row}", *(f"{value:g}" for value in x), int(grade)]
        for row, (x, grade, session) in enumerate(zip(data.X, data.y, data.qid), start=1)
    )
    content = csv_text(["session", "item", *data.feature_names, "grade"], rows).encode()
    if not path.is_file() or path.read_bytes() != content:  # what the same command wrote may stay
        files.check_outputs([path], [], force)
        write_whole(path, content)
    print(
        f"Wrote {len(data.y)} search results of a fictitious shop to {path}. To try next:\n"
        f"  preflearn look {path}\n"
        f"  preflearn train {path} --target grade --query session --report report.html"
    )


def _learn(seed: int) -> dict[str, Any]:
    """Split the queries, fit each model with its best alpha, measure on the held-out queries."""
    import numpy as np

    from .. import RLS, RankRLS
    from ..numerics.threads import blas_at_rest
    from ..tables.shop import load_demo

    start = time.perf_counter()
    data = load_demo(random_state=seed)
    queries = np.random.default_rng(seed).permutation(np.unique(data.qid))
    held_out = np.isin(data.qid, queries[: len(queries) // 3])
    models = {
        "RankRLS, RBF kernel": RankRLS(kernel="rbf"),
        "RankRLS, linear kernel": RankRLS(kernel="linear"),
        "RLS, RBF kernel (regression)": RLS(kernel="rbf"),
    }
    # Matrices this small gain nothing from threads, which would wait for each other on a busy machine.
    with blas_at_rest():
        fitted = {name: _search(model, data, ~held_out) for name, model in models.items()}
    rows = [
        {"model": name, "alpha": alpha, **_measure(model.predict(data.X[held_out]), data, held_out)}
        for name, (model, alpha) in fitted.items()
    ]
    rows.append(_best_feature(data, held_out))
    best, _ = fitted["RankRLS, RBF kernel"]
    return {
        "data": {
            "rows": int(data.y.shape[0]),
            "features": list(data.feature_names),
            "training_queries": int(len(queries) - len(queries) // 3),
            "held_out_queries": len(queries) // 3,
        },
        "alphas": list(_ALPHAS),
        "results": rows,
        "example": _ranked_query(best, data, str(queries[0])),
        "seconds": round(time.perf_counter() - start, 2),
    }


def _search(model: Any, data: DemoData, rows: np.ndarray) -> tuple[Any, float]:
    """The model, standardised inputs before it, fitted with the alpha that ranks held-out queries best."""
    import sklearn
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    from ..metrics import concordance_scorer
    from ..model_selection import QueryKFold

    with sklearn.config_context(enable_metadata_routing=True):
        search = GridSearchCV(
            Pipeline([("scale", StandardScaler()), ("learn", model)]),
            {"learn__alpha": _ALPHAS},
            cv=QueryKFold(3),
            scoring=concordance_scorer,
        ).fit(data.X[rows], data.y[rows], qid=data.qid[rows])
    return search.best_estimator_, search.best_params_["learn__alpha"]


def _measure(scores: np.ndarray, data: DemoData, rows: np.ndarray) -> dict[str, float]:
    from ..metrics import concordance, ndcg

    y, qid = data.y[rows], data.qid[rows]
    return {
        "concordance": round(float(concordance(y, scores, qid)), 4),
        "ndcg_at_10": round(float(ndcg(y, scores, qid, k=10)), 4),
    }


def _best_feature(data: DemoData, held_out: np.ndarray) -> dict[str, Any]:
    """Order by one column, up or down, whichever orders the training queries best."""
    from ..metrics import concordance

    train = ~held_out
    candidates = [(column, sign) for column in range(data.X.shape[1]) for sign in (1, -1)]
    column, sign = max(
        candidates,
        key=lambda c: concordance(data.y[train], c[1] * data.X[train, c[0]], data.qid[train]),
    )
    direction = "" if sign == 1 else ", lowest first"
    name = f"order by {data.feature_names[column]}{direction}"
    return {"model": name, "alpha": None, **_measure(sign * data.X[held_out, column], data, held_out)}


def _ranked_query(model: Any, data: DemoData, query: str) -> dict[str, Any]:
    """The items of one query, best first, as the model orders them."""
    import numpy as np

    rows = np.flatnonzero(data.qid == query)
    scores = model.predict(data.X[rows])
    shown = [data.feature_names.index(name) for name in _SHOWN_FEATURES]
    items = [
        {
            "score": round(float(scores[i]), 3),
            "grade": int(data.y[rows[i]]),
            **{data.feature_names[j]: float(data.X[rows[i], j]) for j in shown},
        }
        for i in np.argsort(-scores, kind="stable")
    ]
    return {"query": query, "items": items}


def _show(console: Console, result: dict[str, Any]) -> None:
    from rich.table import Table

    data = result["data"]
    console.print(
        f"\n[bold]A fictitious shop[/]: {data['rows']} search results with {len(data['features'])} features, "
        f"graded 0 to 4. Learned from {data['training_queries']} queries, measured on "
        f"{data['held_out_queries']} others; alpha chosen by 3-fold cross-validation over whole queries.\n"
    )
    table = Table(title="Held-out queries", title_justify="left", title_style="bold")
    table.add_column("how the items are ordered")
    for column in ("alpha", "concordance", "NDCG@10"):
        table.add_column(column, justify="right")
    for row in result["results"]:
        alpha = "" if row["alpha"] is None else f"{row['alpha']:g}"
        table.add_row(row["model"], alpha, f"{row['concordance']:.3f}", f"{row['ndcg_at_10']:.3f}")
    console.print(table)
    console.print(
        "Concordance is the share of pairs of a query that come out in the right order; 0.5 is chance. The "
        "judges are kinder in some queries than in others. Regression takes that for an effect of the "
        "features; RankRLS compares items within their query only. The RBF kernel adds what is not linear.\n"
    )
    example = result["example"]
    table = Table(
        title=f"Held-out query “{example['query']}”, best first", title_justify="left", title_style="bold"
    )
    for column in example["items"][0]:
        table.add_column(column.replace("_", " "), justify="right")
    for item in example["items"]:
        table.add_row(*(f"{value:g}" for value in item.values()))
    console.print(table)
    console.print(
        f"Done in {result['seconds']} s.\n\n[bold]To try next[/]\n  preflearn demo --seed 1          other "
        "data, another split\n  preflearn demo --json            the same figures for a program\n  preflearn demo "
        "--write shop.csv  a table to try the other commands on\n  preflearn train --help           from a file of "
        "your own\n\n[bold]In Python[/]\n  from sklearn.pipeline import "
        "make_pipeline\n  from sklearn.preprocessing import StandardScaler\n  from preflearn import RankRLSCV\n  from "
        "preflearn.datasets import load_demo\n  X, y, qid, feature_names = load_demo()\n  model = "
        'make_pipeline(StandardScaler(), RankRLSCV(kernel="rbf"))\n  model.fit(X, y, rankrlscv__qid=qid)\n'
        "  model[-1].best_score_, model.predict(X)\n"
    )
