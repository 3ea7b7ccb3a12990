"""How long does a fitted `AutoRanker` take to answer? In batches, for one query of 100 items, by HTTP and as ONNX.

Two models of 46 features: a small one, fitted to 12,000 rows, and a large one with members as a million rows give them,
400 boosted trees of 63 leaves and two learned kernels of 2,000 basis vectors on 92 features. The large one is put
together from parts that are trained on few rows, since only its size matters here. At most 10 µs a row in batches and
1 ms for 100 items are wanted, ONNX within twice of that. A server that answers the same requests with a constant shows
what HTTP and the client take. Wall-clock seconds are the best of many repeats, and beside them stand CPU seconds.
Results: benchmarks/results/asking.json.

    python benchmarks/asking.py [--quick] [--kernels 2] [--basis 2000] [--trees 400]
"""

from __future__ import annotations

import copy
import http.client
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from sklearn.tree import ExtraTreeRegressor

from _harness import arguments, write_results
from preflearn import AutoRanker, RankRLS
from preflearn.auto.kernels import KernelAndCurves
from preflearn.auto.trees import TreeSum
from preflearn.io import save_model, to_onnx
from preflearn.kernels.functions import Kernel
from preflearn.learners.rankrfm import of_expansion
from preflearn.web.requests import parse_object
from preflearn.web.serving import feature_names, matrix_scorer
from sizes import make

VIEWS = (
    ("standardised", "relative"),
    ("quantiles", "relative"),
    ("relative quantiles", "relative"),
)
ITEMS = 100
LEAVES = 63
# Of the answer to a query, about.
_BYTES_OF_ANSWER = 2300


# Models


def learned_kernel(X: np.ndarray, y: np.ndarray, qid: np.ndarray, size: int) -> Any:
    """A `RankRFM` whose metric was learned in two rounds by small models, with coefficients as training gives them."""
    metric = np.ones(X.shape[1])
    for n_basis in (400, 400, size):
        params = {"metric": np.where(metric < 0.02 * metric.max(), 0.0, metric)}
        model = RankRLS(kernel="rbf", gamma="median", kernel_params=params, n_basis=n_basis, random_state=0)
        model.fit(X, y, qid=qid)
        metric = np.sqrt(np.mean(model.gradient(X[:1000]) ** 2, axis=0))
    kernel = Kernel("rbf", model.gamma_, kernel_params=params)
    return of_expansion(
        kernel, model.basis_, model.dual_coef_, alpha=1.0, best_round=2, n_queries=len(np.unique(qid))
    )


def trees(X: np.ndarray, y: np.ndarray, size: int) -> TreeSum:
    """Trees of 63 leaves, each grown on a few rows."""
    rng = np.random.default_rng(0)
    grown = []
    for number in range(size):
        rows = rng.choice(X.shape[0], min(2000, X.shape[0]), replace=False)
        grown.append(
            ExtraTreeRegressor(max_leaf_nodes=LEAVES, max_features=8, random_state=number).fit(
                X[rows], y[rows]
            )
        )
    return TreeSum.of_mean(grown)


def enlarged(small: AutoRanker, part: Any, n_kernels: int, n_basis: int, n_trees: int) -> AutoRanker:
    """The model with members of the sizes that many rows give."""
    model = copy.deepcopy(small)
    X, y, qid = part
    y = (y - y.mean()) / y.std()
    views = model.features_.views(X, _codes(qid))
    tree_view = ("plain", "relative")
    model.members_ = [trees(views[tree_view], y, n_trees)]
    model.views_ = [tree_view, *VIEWS[:n_kernels]]
    for view in VIEWS[:n_kernels]:
        model.members_.append(learned_kernel(views[view], y, qid, n_basis))
    model.member_names_ = ["boosted trees", *(f"kernel {k}" for k in range(n_kernels))]
    model.weights_ = np.array([1.0, *([0.5] * n_kernels)])
    return model


def described(name: str, member: Any) -> str:
    """What takes the time."""
    if isinstance(member, TreeSum):
        n_leaves = int((member.left_ == 0).sum())
        return f"{name} ({member.roots_.size} trees, {n_leaves} leaves)"
    curves = ""
    if isinstance(member, KernelAndCurves):
        curves, member = f", {member.feature_.size} curves", member.kernel_
    if hasattr(member, "dual_coef_"):
        used = np.count_nonzero(member.metric_)
        return f"{name} ({member.dual_coef_.size} basis vectors, {used} of {member.metric_.size} features{curves})"
    return name


def _codes(qid: np.ndarray) -> Any:
    from preflearn.comparisons import encode_queries

    return encode_queries(qid, qid.shape[0])


# Measuring


def measured(
    work: Callable[[], Any], repeats: int, clock: Callable[[], float] = time.process_time, together: int = 1
) -> dict[str, float]:
    """Best and median wall-clock seconds, and the least CPU seconds: of several calls together, their mean."""
    for _ in range(together):
        work()
    wall, busy = [], []
    for _ in range(-(-repeats // together)):
        before = clock()
        for _ in range(together):
            start = time.perf_counter()
            work()
            wall.append(time.perf_counter() - start)
        busy.append((clock() - before) / together)
    return {"wall": min(wall), "median": float(np.median(wall)), "cpu": min(busy)}


def seconds_of_threads(pid: int) -> float:
    """Processor seconds of the threads of a process, to the nanosecond (Linux; elsewhere not known)."""
    try:
        threads = [one.read_text() for one in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    except OSError:
        return float("nan")
    return sum(int(one.split()[0]) for one in threads) / 1e9 if threads else float("nan")


def ask_predict(model: AutoRanker, X: np.ndarray, qid: np.ndarray, repeats: int) -> dict[str, dict]:
    query = X[:ITEMS], np.zeros(ITEMS, dtype=np.int64)
    return {
        "batch": measured(lambda: model.predict(X, qid=qid), repeats),
        "query": measured(lambda: model.predict(query[0], qid=query[1]), 40 * repeats),
    }


def ask_onnx(model: AutoRanker, X: np.ndarray, repeats: int) -> dict[str, dict]:
    from onnxruntime import InferenceSession

    content = to_onnx(model, one_query=True).SerializeToString()
    session = InferenceSession(content, providers=["CPUExecutionProvider"])
    few = X[:ITEMS]
    return {
        "batch": measured(lambda: session.run(None, {"X": X}), repeats),
        "query": measured(lambda: session.run(None, {"X": few}), 40 * repeats),
    }


def onnx_operators(model: AutoRanker, X: np.ndarray) -> tuple[float, dict[str, float]]:
    """CPU seconds of one thread of onnxruntime, and the shares of its operators by their least wall-clock times."""
    from onnxruntime import InferenceSession, SessionOptions

    options, spent = SessionOptions(), dict[tuple[str, str], list[float]]()
    with tempfile.TemporaryDirectory() as folder:
        options.intra_op_num_threads, options.enable_profiling = 1, True
        options.profile_file_prefix = str(Path(folder, "profile"))
        content = to_onnx(model, one_query=True).SerializeToString()
        session = InferenceSession(content, options, providers=["CPUExecutionProvider"])
        cpu = measured(lambda: session.run(None, {"X": X}), 10)["cpu"]
        events = json.loads(Path(session.end_profiling()).read_text())
    for event in events:
        if event["cat"] == "Node" and event["name"].endswith("kernel_time"):
            spent.setdefault((event["args"]["op_name"], event["name"]), []).append(event["dur"])
    found: dict[str, float] = {}
    for (kind, _), times in spent.items():
        found[kind] = found.get(kind, 0.0) + min(times)
    total = sum(found.values())
    return cpu, {kind: one / total for kind, one in sorted(found.items(), key=lambda one: -one[1])}


def ask_server(model: AutoRanker, X: np.ndarray, repeats: int) -> dict[str, dict]:
    """One connection to the real server."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.preflearn")
        save_model(model, path)
        command = ["-m", "preflearn", "serve", str(path), "--port", "0", "--quiet"]
        return over_http(command, X, repeats)


def ask_readers(model: AutoRanker, X: np.ndarray, repeats: int) -> dict[str, dict]:
    """Reading the items of a request, without an answer: by the standard library, and by msgspec."""
    scorer = matrix_scorer(model, feature_names(model))
    body = bytearray(body_of(X[:ITEMS]))
    return {
        "standard library": measured(lambda: scorer.columns(json.loads(body)["items"]), 40 * repeats),
        "msgspec": measured(lambda: scorer.columns(parse_object(body)["items"]), 40 * repeats),
    }


def body_of(X: np.ndarray) -> bytes:
    """A request for these items."""
    names = [f"x{k}" for k in range(X.shape[1])]
    return json.dumps({"items": [dict(zip(names, row.tolist())) for row in X]}).encode()


def over_http(command: list[str], X: np.ndarray, repeats: int) -> dict[str, dict]:
    """One connection to the server that Python starts by this; CPU seconds are those of the server."""
    server = subprocess.Popen([sys.executable, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        netloc = urlsplit(server.stdout.readline().strip()).netloc
        connection = http.client.HTTPConnection(netloc)

        def ask(body: bytes) -> None:
            connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            assert response.status == 200, content

        bodies = [body_of(X), body_of(X[:ITEMS])]

        def clock() -> float:
            return seconds_of_threads(server.pid)

        return {
            # The end of an answer is counted with the next one.
            "batch": measured(lambda: ask(bodies[0]), repeats, clock, together=2),
            "query": measured(lambda: ask(bodies[1]), 40 * repeats, clock, together=20),
        }
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    options = arguments(__doc__, repeats=10, kernels=2, basis=2000, trees=400, rows=12_000)
    n_rows = 1500 if options.quick else options.rows
    train, test = make("interactions", n_rows, 1)
    small = AutoRanker(random_state=0, preset="fast" if options.quick else None)
    small.fit(train.X, train.y, qid=train.qid)
    sizes = (2, 300, 20) if options.quick else (options.kernels, options.basis, options.trees)
    part = train.X[:8000], train.y[:8000], train.qid[:8000]
    models = {"small": small, "large": enlarged(small, part, *sizes)}
    X = test.X[: 2_000 if options.quick else 20_000]
    qid = np.arange(X.shape[0]) // ITEMS
    repeats = 1 if options.quick else options.repeats
    results = []
    constant = [str(Path(__file__).with_name("_constant.py")), str(_BYTES_OF_ANSWER)]
    for name, model in models.items():
        members = ", ".join(map(described, model.member_names_, model.members_))
        print(f"\n{name}: {members}")
        one_list = X[:2000]
        ways = {
            "predict": (ask_predict(model, X, qid, repeats), X.shape[0]),
            "ONNX": (ask_onnx(model, one_list, repeats), one_list.shape[0]),
            "preflearn serve": (ask_server(model, one_list, repeats), one_list.shape[0]),
            "HTTP alone": (over_http(constant, one_list, repeats), one_list.shape[0]),
        }
        print(f"{'':16}  µs a row  CPU   ms for {ITEMS} items  median  CPU")
        for way, (found, n) in ways.items():
            batch, query = found["batch"], found["query"]
            print(
                f"{way:16}  {1e6 * batch['wall'] / n:8.1f} {1e6 * batch['cpu'] / n:5.1f}   "
                f"{1e3 * query['wall']:15.2f}  {1e3 * query['median']:6.2f} {1e3 * query['cpu']:5.2f}"
            )
        cpu, shares = onnx_operators(model, one_list)
        shown = ", ".join(f"{kind} {share:.0%}" for kind, share in list(shares.items())[:4])
        print(f"one thread of ONNX: {1e6 * cpu / one_list.shape[0]:.1f} µs a row, CPU ({shown})")
        results.append(
            {
                "question": f"How long does a {name} AutoRanker take to answer?",
                "unit": "s",
                "members": members,
                "items of a query": ITEMS,
                "ways": {
                    way: {"rows of a batch": n, "for a row of a batch": _each(found["batch"], n)}
                    | {"for one query": found["query"]}
                    for way, (found, n) in ways.items()
                },
            }
        )
    reading = ask_readers(small, X, repeats)
    shown = ", ".join(f"{1e3 * found['wall']:.2f} ms by the {way}" for way, found in reading.items())
    print(f"\nreading {ITEMS} items of {X.shape[1]} features from a request: {shown}")
    results.append({"question": "How long does it take to read a request?", "unit": "s", "ways": reading})
    if not options.quick:
        write_results("asking", *results)


def _each(seconds: dict[str, float], n: int) -> dict[str, float]:
    return {name: value / n for name, value in seconds.items()}


if __name__ == "__main__":
    main()
