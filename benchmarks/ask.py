"""From a click to the next question in `preflearn ask`, through the real server: how long does a judge wait?

1. 500 items with 10 features and 2,000 answers: at most 0.15 seconds.
2. 2,000 items with 10 features and 20,000 answers: at most 1 second.
3. 1,000 answers over 20 connections: none lost, none counted twice; answers a second.

A click is one POST of an answer, which is on the disk before the reply with the next question comes. A judge reads for
half a second between clicks; "in a row" does not. Results: benchmarks/results/ask.json.

    python benchmarks/ask.py [--quick]
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import numpy as np

from _harness import arguments, report, write_results

READING = 0.5


class Asking:
    """`preflearn ask` in a process of its own."""

    def __init__(self, items: Path, answers: Path):
        command = [
            sys.executable,
            "-m",
            "preflearn",
            "ask",
            str(items),
            "--answers",
            str(answers),
            "--no-open",
        ]
        self.process = subprocess.Popen(
            [*command, "--port", "0", "--quiet"], stdout=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        start = time.perf_counter()
        address = urlsplit(self.process.stdout.readline().strip())
        self.seconds_to_start = time.perf_counter() - start
        self.netloc, self.token = address.netloc, parse_qs(address.query)["token"][0]

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *error: object) -> None:
        self.process.kill()
        self.process.wait()


class Judge:
    """One connection, kept open."""

    def __init__(self, server: Asking, name: str, worth: dict[str, float], seed: int):
        self.connection = http.client.HTTPConnection(server.netloc, timeout=120)
        self.headers = {"X-Preflearn-Token": server.token, "Content-Type": "application/json"}
        self.name, self.worth = name, worth
        self.rng = np.random.default_rng(seed)
        self.question = self.call("GET", f"/api/question?judge={name}")

    def call(self, method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        self.connection.request(method, path, json.dumps(body) if body else None, self.headers)
        response = self.connection.getresponse()
        found = json.loads(response.read())
        assert response.status == 200, found
        return found

    def click(self) -> float:
        """Answer, and the seconds until the next question is here."""
        left, right = (self.question[side]["item"] for side in ("left", "right"))
        left_wins = self.rng.random() < 1 / (1 + np.exp(self.worth[right] - self.worth[left]))
        body = {
            "judge": self.name,
            "question": self.question["question"],
            "left": left,
            "right": right,
            "verdict": "left" if left_wins else "right",
        }
        start = time.perf_counter()
        found = self.call("POST", "/api/answer", body)
        seconds = time.perf_counter() - start
        assert found["counted"]
        self.question = found
        return seconds


def prepare(folder: Path, n_items: int, n_answers: int) -> tuple[Path, Path, dict[str, float]]:
    """Items with features, and answers that were given before."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_items, 10))
    worth = 2.0 * X @ rng.normal(size=10) / np.sqrt(10)
    names = [f"item {k:05}" for k in range(n_items)]
    items, answers = folder / "items.csv", folder / "answers.jsonl"
    header = ",".join(["name", *(f"feature{k}" for k in range(10))])
    rows = [",".join([name, *(f"{value:.6f}" for value in row)]) for name, row in zip(names, X, strict=True)]
    items.write_text("\n".join([header, *rows]) + "\n")
    with open(answers, "w") as file:
        for number in range(n_answers):
            h, j = rng.choice(n_items, 2, replace=False)
            if rng.random() > 1 / (1 + np.exp(worth[j] - worth[h])):
                h, j = j, h
            entry = {"winner": names[h], "loser": names[j], "judge": "ann", "question": f"before{number}"}
            file.write(json.dumps(entry) + "\n")
    return items, answers, dict(zip(names, worth.tolist(), strict=True))


def clicks(n_items: int, n_answers: int, limit: float, n_clicks: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        items, answers, worth = prepare(Path(folder), n_items, n_answers)
        with Asking(items, answers) as server:
            judge = Judge(server, "ann", worth, 1)
            judge.click()
            waited, in_a_row = [], []
            for _ in range(n_clicks):
                time.sleep(READING)
                waited.append(judge.click())
            for _ in range(n_clicks):
                in_a_row.append(judge.click())
            values = {
                "limit": limit,
                "median click": float(np.median(waited)),
                "95 % of clicks": float(np.quantile(waited, 0.95)),
                "slowest click": max(waited),
                "median in a row": float(np.median(in_a_row)),
                "slowest in a row": max(in_a_row),
            }
            note = f"{n_items} items, {n_answers} answers before, started in {server.seconds_to_start:.1f} s"
    limits = {"95 % of clicks": 1.0, "median in a row": 1.0}
    return report(
        f"From click to next question, {n_items} items", values, baseline="limit", limits=limits, note=note
    )


def crowd(n_judges: int, n_each: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        items, answers, worth = prepare(Path(folder), 100, 0)
        seconds: list[float] = []
        with Asking(items, answers) as server:
            judges = [Judge(server, f"judge{k}", worth, k) for k in range(n_judges)]

            def work(judge: Judge) -> None:
                seconds.extend(judge.click() for _ in range(n_each))

            threads = [threading.Thread(target=work, args=(judge,)) for judge in judges]
            start = time.perf_counter()
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            total = time.perf_counter() - start
        kept = [json.loads(line)["question"] for line in answers.read_text().splitlines()]
    n = n_judges * n_each
    found = {
        "question": f"{n} answers over {n_judges} connections",
        "lost": n - len(set(kept)),
        "counted twice": len(kept) - len(set(kept)),
        "answers a second": round(n / total, 1),
        "median seconds": round(float(np.median(seconds)), 4),
    }
    print(found)
    assert found["lost"] == found["counted twice"] == 0
    return found


def main() -> None:
    options = arguments(__doc__, repeats=1)
    if options.quick:
        clicks(20, 50, 0.15, 3)
        crowd(3, 5)
        return
    results = [clicks(500, 2_000, 0.15, 30), clicks(2_000, 20_000, 1.0, 20), crowd(20, 50)]
    write_results("ask", *results)


if __name__ == "__main__":
    main()
