"""`preflearn serve`: how many requests of 20 items a second, and how long does one take?

A linear model of 10 features behind the real server, loaded by a second process on the same two cores: at least 500
requests a second, the median below 10 milliseconds. Results: benchmarks/results/serve.json.

    python benchmarks/serve.py [--quick]
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from _harness import arguments, report, write_results
from preflearn import RankRLS
from preflearn.io import save_model

N_ITEMS, N_FEATURES = 20, 10


def processor_seconds(pid: int) -> float:
    """Processor time that a process has taken (Linux; elsewhere not known)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return float("nan")
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(n_requests: int, n_connections: int) -> tuple[float, list[float], float]:
    """Requests a second, the seconds of each, and the server's processor time for one."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(500, N_FEATURES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.preflearn")
        save_model(make_pipeline(StandardScaler(), RankRLS()).fit(X, X[:, 0] - X[:, 1]), path)
        command = [sys.executable, "-m", "preflearn", "serve", str(path), "--port", "0", "--quiet"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert server.stdout is not None
            netloc = urlsplit(server.stdout.readline().strip()).netloc
            items = [dict(zip((f"x{k}" for k in range(N_FEATURES)), row.tolist())) for row in X[:N_ITEMS]]
            body = json.dumps({"items": items}).encode()
            seconds: list[float] = []

            def work(n: int) -> None:
                connection = http.client.HTTPConnection(netloc)
                for _ in range(n):
                    start = time.perf_counter()
                    connection.request("POST", "/rank", body, {"Content-Type": "application/json"})
                    response = connection.getresponse()
                    content = response.read()
                    assert response.status == 200, content
                    seconds.append(time.perf_counter() - start)

            work(50)
            seconds.clear()
            threads = [
                threading.Thread(target=work, args=(n_requests // n_connections,))
                for _ in range(n_connections)
            ]
            before = processor_seconds(server.pid)
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            rate = len(seconds) / (time.perf_counter() - start)
            return rate, seconds, (processor_seconds(server.pid) - before) / len(seconds)
        finally:
            server.terminate()
            server.wait()


def main() -> None:
    options = arguments(__doc__, repeats=3)
    n_requests = 200 if options.quick else 3000
    best = max(
        (measure(n_requests, 4) for _ in range(1 if options.quick else options.repeats)),
        key=lambda one: one[0],
    )
    rate, seconds, processor = best
    note = f"{N_ITEMS} items of {N_FEATURES} features, 4 connections, {rate:.0f} requests a second; the server takes "
    note += f"{1e3 * processor:.2f} ms of a processor for one"
    values = {"limit": 0.010, "median": float(np.median(seconds)), "99 %": float(np.quantile(seconds, 0.99))}
    latency = report("One request", values, baseline="limit", limits={"median": 1.0}, note=note)
    rates = report(
        "500 requests over the requests of a second",
        {"wanted": 500.0, "served": rate},
        baseline="wanted",
        unit="requests/s",
    )
    if not options.quick:
        write_results("serve", latency, rates)


if __name__ == "__main__":
    main()
