"""The published experiments: the table of them, runs that resume, the command, and each one on small data."""

from __future__ import annotations

import inspect
import io
import json
import lzma
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from preflearn import RankSVM
from preflearn.cli.app import run as command
from preflearn_experiments import ExperimentReport, Resume, registry
from preflearn_experiments.data import official_fold, ohsumed_parts, read_newswire, scale_in_queries

# Every name that `preflearn reproduce` promises.
NAMES = [
    "ohsumed",
    "ohsumed-kernel",
    "reuters",
    "jester",
    "runtime",
    "nystrom-cv",
    "sparse",
    "parses",
    "parse-costs",
    "auc-estimation",
    "transductive",
    "ppi",
    "ppi-cross",
    "leaks",
    "order-benchmarks",
    "order-sentiment",
    "order-housing",
    "arguments",
    "davis",
    "elicitation",
]


# ---------------------------------------------------------------------------------------------------- the table


def test_every_promised_experiment_is_in_the_table() -> None:
    assert registry.names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_experiment_can_be_called_alike(name: str) -> None:
    parameters = inspect.signature(registry.get(name).run).parameters
    assert {"seed", "verbose"} <= set(parameters)
    assert all(p.kind is p.KEYWORD_ONLY and p.default is not p.empty for p in parameters.values())
    assert ("data" in parameters) == bool(registry.get(name).folders)


def test_an_unknown_name_is_refused_with_the_names() -> None:
    with pytest.raises(ValueError, match="no experiment 'tables'.*ohsumed-kernel.*arguments"):
        registry.get("tables")


def test_missing_folders(tmp_path: Path) -> None:
    assert registry.get("sparse").missing_folders(None) == ["letor_ohsumed_v2"]
    assert registry.get("sparse").missing_folders(tmp_path) == ["letor_ohsumed_v2"]
    assert registry.get("nystrom-cv").missing_folders(None) == []
    (tmp_path / "letor_ohsumed_v2").mkdir()
    assert registry.get("sparse").missing_folders(tmp_path) == []


# ------------------------------------------------------------------------------------------------------- resume


class Interrupted(BaseException):
    """Stands for a key press."""


class Work:
    """Units that count how often they are computed, and stop the run after some of them."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.done: list[int] = []
        self.stop_after = stop_after

    def __call__(self, resume: Path | None, n: int = 5, **settings: Any) -> list[Any]:
        work = Resume(resume, "squares", {"n": n, **settings}, counts=("n",))
        return [work.unit(f"number {k}", lambda k=k: self._square(k)) for k in range(n)]

    def _square(self, k: int) -> dict[str, Any]:
        if len(self.done) == self.stop_after:
            raise Interrupted
        self.done.append(k)
        return {"square": np.float64(k * k), "both": np.array([k, -k]), "exact": 1 / 3}


def test_an_interrupted_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "units.json"
    first, second = Work(stop_after=3), Work()
    with pytest.raises(Interrupted):
        first(file)
    rows = second(file)
    assert (first.done, second.done) == ([0, 1, 2], [3, 4])
    assert rows == Work()(None)
    assert rows[2] == {"square": 4.0, "both": [2, -2], "exact": 1 / 3}
    assert [path.name for path in tmp_path.iterdir()] == ["units.json"]


def test_more_units_extend_a_finished_run(tmp_path: Path) -> None:
    Work()(tmp_path / "units.json", n=2)
    more = Work()
    assert len(more(tmp_path / "units.json", n=4)) == 4
    assert more.done == [2, 3]


def test_units_of_other_settings_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "units.json"
    Work()(file, seed=0)
    before = file.read_bytes()
    with pytest.raises(ValueError, match=r"units\.json was begun by 'squares' with other settings"):
        Work()(file, seed=1)
    assert file.read_bytes() == before


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"fingerprint": "a", "units": {"b": 1}}', "\x00"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "units.json"
    file.write_text(content)
    with pytest.raises(ValueError, match="holds no finished units"):
        Work()(file)
    assert file.read_text() == content


def test_a_unit_is_asked_for_once() -> None:
    work = Resume(None, "squares", {})
    work.unit("one", lambda: 1)
    with pytest.raises(ValueError, match="'one' of squares was asked for twice"):
        work.unit("one", lambda: 1)


def test_what_json_cannot_keep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="holds a complex"):
        Resume(tmp_path / "units.json", "squares", {}).unit("one", lambda: 1j)
    assert list(tmp_path.iterdir()) == []


def test_the_time_of_earlier_runs_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "units.json"
    Work()(file, n=1)
    content = json.loads(file.read_text())
    content["units"]["number 0"]["seconds"] = 1000.0
    file.write_text(json.dumps(content))
    assert Resume(file, "squares", {"n": 1}, counts=("n",)).seconds > 1000.0


def test_progress_says_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "units.json"
    Resume(file, "squares", {}).unit("one", lambda: 1)
    work = Resume(file, "squares", {}, total=2, verbose=1)
    work.unit("one", lambda: 1)
    work.unit("two", lambda: 2)
    err = capsys.readouterr().err.splitlines()
    assert err[0] == "[squares] 1 of 2: one (kept)"
    assert err[1].startswith("[squares] 2 of 2: two (0.")


# -------------------------------------------------------------------------------------------- shared small parts


def test_scaling_in_queries_is_that_of_a_loop() -> None:
    random = np.random.default_rng(0)
    X, qid = random.normal(size=(40, 3)), random.integers(5, size=40)
    X[:, 2] = qid
    expected = np.zeros_like(X)
    for query in np.unique(qid):
        rows = qid == query
        for column in range(2):
            values = X[rows, column]
            expected[rows, column] = (values - values.min()) / (values.max() - values.min())
    np.testing.assert_allclose(scale_in_queries(X, qid), expected, rtol=1e-13)


# --------------------------------------------------------------------------------------------- stand-ins for data


def write_ranking(path: Path, random: np.random.Generator, queries: range, n_features: int = 4) -> None:
    """A LETOR file in which the first feature decides, and labels 0, 1, 2."""
    lines = []
    for query in queries:
        X = random.normal(size=(12, n_features)).round(3)
        labels = np.digitize(X[:, 0] + 0.2 * random.normal(size=12), [-0.3, 0.6])
        labels[:3] = 0, 1, 2
        for label, row in zip(labels, X, strict=True):
            features = " ".join(f"{k + 1}:{value}" for k, value in enumerate(row))
            lines.append(f"{label} qid:{query} {features} #docid = {len(lines)}\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt") as file:
        file.writelines(lines)


def write_newswire(path: Path, random: np.random.Generator, n: int = 400) -> None:
    """An archive of SGML in which a topic brings its words along."""
    topics = {"acq": "takeover", "earn": "profit", "grain": "harvest"}
    documents = []
    for number in range(n):
        has = [topic for topic in topics if random.random() < 0.3]
        # Every third word of a topic is missing, so that the task is not trivial.
        words = [f"word{k}" for k in random.integers(30, size=15)]
        words += [f"{topics[topic]} &lt;{topic}>" for topic in has if random.random() < 0.67]
        split = "TRAIN" if number % 2 else "TEST"
        kind = "NO" if number % 10 == 9 else "YES"
        items = "".join(f"<D>{topic}</D>" for topic in has)
        documents.append(
            f'<REUTERS TOPICS="{kind}" LEWISSPLIT="{split}" NEWID="{number}">\n<TOPICS>{items}</TOPICS>\n'
            f"<TEXT>&#2;\n<TITLE>{words[0]}</TITLE>\n<BODY>{' '.join(words[1:])}\xfc</BODY></TEXT>\n</REUTERS>\n"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:xz") as archive:
        for number in range(2):
            content = "".join(documents[number::2]).encode("latin-1")
            entry = tarfile.TarInfo(f"reuters21578/reut2-00{number}.sgm")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_ratings(path: Path, random: np.random.Generator, n_users: int, shares: tuple[float, float]) -> None:
    """Users whose taste is one of two directions in a plane of jokes."""
    jokes = np.random.default_rng(7).normal(size=(100, 2))
    taste = random.normal(size=(n_users, 2)) + [1.5, 0.0]
    ratings = np.clip(3 * taste @ jokes.T + random.normal(size=(n_users, 100)), -9.9, 9.9).round(2)
    rated = random.random((n_users, 100)) < random.uniform(*shares, size=(n_users, 1))
    table = np.column_stack([rated.sum(axis=1), np.where(rated, ratings, 99)])
    path.parent.mkdir(parents=True, exist_ok=True)
    with lzma.open(path, "wt") as file:
        np.savetxt(file, table, fmt="%g", delimiter=",")


@pytest.fixture(scope="module")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    random = np.random.default_rng(0)
    for part in range(1, 6):
        queries = range(10 * part, 10 * part + 6)
        write_ranking(folder / "letor_ohsumed_v2" / f"S{part}.txt.xz", random, queries)
        write_ranking(folder / "letor_ohsumed_v3" / "QueryLevelNorm" / f"S{part}.txt.xz", random, queries, 6)
    for number, name in enumerate(("train", "test")):
        queries = range(100 * number, 100 * number + 12)
        write_ranking(folder / "mslr_sample" / f"web10k_fold1_{name}_5k.txt.xz", random, queries)
    write_newswire(folder / "reuters21578" / "reuters21578.tar.xz", random)
    for number, shares in enumerate(((0.3, 1.0), (0.5, 1.0), (0.2, 0.4))):
        write_ratings(folder / "jester1" / f"jester-data-{number + 1}.csv.xz", random, 120, shares)
    write_affinities(folder / "davis_kinase", random)
    return folder


def write_affinities(folder: Path, random: np.random.Generator, p: int = 14, q: int = 20) -> None:
    """Drugs and targets as points on a line, which bind where these are near."""
    folder.mkdir()
    drugs, targets = random.random(p), random.random(q)
    kd = 10 ** (1 + 3 * np.abs(drugs[:, None] - targets) + 0.1 * random.random((p, q)))
    order = random.permutation(p * q).tolist()
    tables = {
        "affinities_kd": kd,
        "drug_similarities_2d": np.exp(-((drugs[:, None] - drugs) ** 2)),
        "target_similarities_sw": 1000 * np.exp(-((targets[:, None] - targets) ** 2)),
    }
    for name, table in tables.items():
        with lzma.open(folder / f"{name}.txt.xz", "wt") as file:
            np.savetxt(file, table)
    folds = [order[k::6] for k in range(6)]
    for name, content in (("test_fold_setting1", folds[0]), ("train_folds_setting1", folds[1:])):
        with lzma.open(folder / f"{name}.json.xz", "wt") as file:
            json.dump(content, file)


# Settings with which an experiment on the stand-ins takes a second or two.
SMALL: dict[str, dict[str, Any]] = {
    "ohsumed": {"folds": 2, "alphas": (0.1, 10.0)},
    "ohsumed-kernel": {
        "folds": 1,
        "n_basis": 20,
        "alphas": (0.01, 1.0),
        "svm_alphas": (1.0,),
        "gammas": (0.5,),
    },
    "reuters": {"trials": 2, "n_train": 60, "n_topics": 3, "alphas": (0.1, 1.0), "svm_alphas": (1.0,)},
    "jester": {
        "trials": 1,
        "n_active": 10,
        "n_reference": 20,
        "n_choosing": 3,
        "min_ratings": 60,
        "alphas": (1.0, 64.0),
        "svm_alphas": (1.0,),
        "gammas": (2.0**-10, 2.0**-8),
    },
    "runtime": {"sizes": (40, 60)},
    "sparse": {
        "trials": 2,
        "folds": 2,
        "per_query": 3,
        "times": 3,
        "alphas": (0.1, 10.0),
        "gammas": (0.5, 2.0),
    },
    "transductive": {
        "trials": 2,
        "n_queries": 8,
        "rows_per_query": 8,
        "scored": (2, 4),
        "alphas": (0.1, 1.0),
        "fidelities": (1.0,),
    },
    "davis": {
        "alphas": (0.1, 1.0),
        "few_alphas": (0.1, 1.0),
        "drug_widths": (1.0,),
        "target_widths": (1.0,),
        "n_train_drugs": 9,
        "n_train_targets": 12,
        "seed": 0,
    },
}


@pytest.fixture(scope="module")
def small_report(small_data: Path) -> Callable[[str], ExperimentReport]:
    known: dict[str, ExperimentReport] = {}

    def report(name: str) -> ExperimentReport:
        if name not in known:
            known[name] = registry.get(name).run(data=small_data, **SMALL[name])
        return known[name]

    return report


# ------------------------------------------------------------------------------------------- every experiment


@pytest.mark.parametrize("name", SMALL)
def test_a_report_says_what_was_done(name: str, small_report: Callable[[str], ExperimentReport]) -> None:
    report = small_report(name)
    text = str(report)
    assert report.name == name
    assert text.startswith(f"# {report.title}\n") and "Published: " in text
    assert f"`preflearn reproduce {name}`, seed 0, " in text
    assert all(set(report.columns) <= set(row) for row in report.rows)
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 120
    assert json.loads(report.to_json())["rows"] == report.rows
    assert report.seconds > 0 and report.findings


@pytest.mark.parametrize("name", SMALL)
def test_an_interrupted_experiment_resumes_to_the_same_rows(
    name: str,
    small_data: Path,
    small_report: Callable[[str], ExperimentReport],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    whole, run, file = small_report(name), registry.get(name).run, tmp_path / "units.json"
    plain_unit = Resume.unit
    computed: list[str] = []

    def watched(stop_after: int | None) -> Callable[..., Any]:
        def unit(self: Resume, key: str, work: Callable[[], Any]) -> Any:
            def watched_work() -> Any:
                if len(computed) == stop_after:
                    raise Interrupted
                computed.append(key)
                return work()

            return plain_unit(self, key, watched_work)

        return unit

    monkeypatch.setattr(Resume, "unit", watched(stop_after=1))
    with pytest.raises(Interrupted):
        run(data=small_data, resume=file, **SMALL[name])
    (kept,) = computed
    assert list(json.loads(file.read_text())["units"]) == [kept]
    computed.clear()
    monkeypatch.setattr(Resume, "unit", watched(stop_after=None))
    resumed = run(data=small_data, resume=file, **SMALL[name])
    assert computed and kept not in computed
    if name != "runtime":  # which measures times
        assert resumed.rows == whole.rows and resumed.findings == whole.findings


def test_ohsumed_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    rows = {row["method"]: row for row in small_report("ohsumed").rows}
    assert (rows["RankRLS"]["published"], rows["RLS"]["published"]) == (0.340, 0.346)
    assert all(0 <= row["error"] < 0.25 for row in rows.values())
    assert rows["RankRLS"]["p"] is None and rows["RankRLS"]["log2 λ"].count(",") == 1


def test_ohsumed_kernel_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    rows = small_report("ohsumed-kernel").rows
    assert len(rows) == 2 * 2 * 4
    assert all(row["error"] < 0.35 and row["MAP"] > 0.5 and row["NDCG@10"] > 0.5 for row in rows)


def test_reuters_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    report = small_report("reuters")
    assert [row["topic"] for row in report.rows] == ["acq", "earn", "grain", "mean"]
    assert report.rows[0]["published"] == 0.980 and report.rows[0]["RankRLS"] > 0.7
    mean = report.rows[-1]
    assert mean["RankRLS"] == pytest.approx(np.mean([row["RankRLS"] for row in report.rows[:-1]]))
    assert abs(mean["RankRLS"] - mean["RankSVM"]) < 0.1


def test_davis_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    report = small_report("davis")
    rows = {row["new"]: row for row in report.rows}
    assert list(rows) == ["pair", "drug", "target", "both"] and rows["drug"]["RLScore"] == 0.716
    assert all(row["preflearn"] > 0.85 for row in rows.values())
    (folds,) = report.more
    assert folds.rows[-1]["method"] == "preflearn" and folds.rows[-1]["concordance"] > 0.85


def test_newswire_reads_what_counts(small_data: Path) -> None:
    documents = read_newswire(small_data, "reuters")
    # One in ten has no TOPICS="YES".
    assert len(documents.texts) == 360
    assert documents.largest_topics(2) == sorted(documents.largest_topics(2))
    assert all("<BODY>" not in text and "\xfc" in text for text in documents.texts)
    with_topic = [text for text, topics in zip(*documents, strict=True) if "acq" in topics]
    assert any("takeover <acq>" in text for text in with_topic)


def test_jester_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    rows = small_report("jester").rows
    assert [row["method"] for row in rows][1] == "RankRLS (21), magnitude"
    assert rows[1]["published 20–40"] == 0.413 and rows[-1]["published all"] is None
    for row in rows[:2]:
        assert all(float(row[density].split()[0]) < 0.35 for density in ("20–40", "60–80", "all"))


def test_runtime_explicit_pairs_solve_the_problem_of_ranksvm(small_data: Path) -> None:
    from preflearn_experiments import runtime

    random = np.random.default_rng(0)
    X, y = random.normal(size=(40, 3)), (np.arange(40) < 12).astype(float)
    X[:, 0] += y
    new = random.normal(size=(10, 3))
    expected = RankSVM(
        runtime._SVM_ALPHA, loss="hinge", kernel="rbf", gamma=runtime._GAMMA, tol=1e-6, max_iter=2000
    ).fit(X, y)
    differences = np.diff(expected.predict(new))
    found = runtime._explicit_pairs("LinearSVC", X, y)(new)
    np.testing.assert_allclose(np.diff(found), differences, atol=5e-3 * np.abs(differences).max())


def test_runtime_leaves_out_what_would_take_too_long(small_data: Path) -> None:
    from preflearn_experiments import runtime

    rows = runtime.run(data=small_data, sizes=(40, 60), limit=1e-6).rows
    assert rows[0]["SVC"] is not None and rows[1]["SVC"] is None
    assert all(row["RankRLS"] > 0 for row in rows)
    with pytest.raises(ValueError, match="9000 training documents were asked for"):
        runtime.run(data=small_data, sizes=(40, 9000))


def test_runtime_figure(small_report: Callable[[str], ExperimentReport], tmp_path: Path) -> None:
    small_report("runtime").save_figure(tmp_path / "runtime.svg")
    assert (
        "training documents" in (tmp_path / "runtime.svg").read_text()
        or (tmp_path / "runtime.svg").stat().st_size
    )


def test_sparse_uses_more_rows(small_report: Callable[[str], ExperimentReport]) -> None:
    report = small_report("sparse")
    rows = {row["method"]: row for row in report.rows}
    assert list(rows) == ["RLS", "sparse RLS", "RankRLS", "sparse RankRLS"]
    assert rows["sparse RankRLS"]["error"] < 0.35
    assert "72 in all" in report.protocol and "3 times the rows, 216" in report.protocol


def test_transductive_learns(small_report: Callable[[str], ExperimentReport]) -> None:
    rows = small_report("transductive").rows
    assert [(row["data"], row["scored queries"]) for row in rows] == [
        (data, count) for data in ("OHSUMED", "MSLR-WEB10K") for count in (2, 4)
    ]
    for row in rows:
        assert row["RankRLS"] < 0.4
        assert row["difference"] == pytest.approx(row["transductive"] - row["RankRLS"])


def test_official_folds_are_rotations(small_data: Path) -> None:
    parts = ohsumed_parts(small_data, "ohsumed")
    for fold in range(5):
        train, validation, test = official_fold(parts, fold)
        assert set(train.qid) | set(validation.qid) | set(test.qid) == {q for part in parts for q in part.qid}
        assert not set(test.qid) & (set(train.qid) | set(validation.qid))
    assert official_fold(parts, 0)[2] is parts[4]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("ohsumed", {"folds": 6}, "five official folds"),
        ("ohsumed-kernel", {"folds": 0}, "five official folds"),
        ("sparse", {"folds": 6}, "five parts"),
        ("reuters", {"n_train": 1}, "no 1 documents hold two of each topic"),
        ("jester", {"n_reference": 500}, "500 reference users with 20 to 40"),
        ("jester", {"n_reference": 20, "n_active": 900}, "users with at least 81 ratings"),
        ("transductive", {"scored": (1,)}, "scored must be numbers from 2"),
        ("transductive", {"n_queries": 90, "scored": (2,)}, "90 queries with a preference"),
    ],
)
def test_impossible_settings_are_refused(
    name: str, settings: dict[str, Any], message: str, small_data: Path
) -> None:
    with pytest.raises(ValueError, match=message):
        registry.get(name).run(data=small_data, **settings)


@pytest.mark.parametrize("name", SMALL)
def test_missing_data_are_named(name: str, tmp_path: Path) -> None:
    run, folder = registry.get(name).run, registry.get(name).folders[0]
    with pytest.raises(ValueError, match=f"{name} reads the folder {folder}: pass data="):
        run()
    with pytest.raises(FileNotFoundError, match=f"{name} reads the folder {folder}, and .* has none"):
        run(data=tmp_path)
    (tmp_path / folder).mkdir()
    with pytest.raises(FileNotFoundError, match=f"{name} reads .*, and .* has no such file"):
        run(data=tmp_path)


# -------------------------------------------------------------------------------------------------- the command


def fake_table(monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
    """One quick experiment that needs the folder ``here`` and has trials, and one without data or options."""

    def needy(
        *,
        data: Path | None = None,
        trials: int = 2,
        seed: int = 0,
        verbose: int = 0,
        resume: Path | None = None,
    ) -> ExperimentReport:
        work = Resume(resume, "needy", {"seed": seed}, counts=("trials",), verbose=verbose)
        rows = [work.unit(f"trial {k}", lambda k=k: {"trial": k, "seed": seed}) for k in range(trials)]
        if options.get("fail"):
            raise Interrupted
        settings = {"trials": trials, "seed": seed}
        return ExperimentReport("needy", "T", "P", "Q", ("trial", "seed"), rows, settings=settings)

    def simple(*, seed: int = 0, verbose: int = 0) -> ExperimentReport:
        def draw(report: ExperimentReport, axes: Any = None) -> Any:
            import matplotlib.pyplot as plt

            return plt.figure()

        return ExperimentReport(
            "simple", "T", "P", "Q", ("x",), [{"x": 1}], settings={"seed": seed}, draw=draw
        )

    class Table(registry.Experiment):
        run = property(lambda self: {"needy": needy, "simple": simple}[self.name])  # type: ignore[assignment]

    table = {
        "needy": Table("needy", "-", "needs here", ("here",)),
        "simple": Table("simple", "-", "needs nothing"),
    }
    monkeypatch.setattr(registry, "EXPERIMENTS", table)
    monkeypatch.delenv("PREFLEARN_DATA", raising=False)


@pytest.fixture
def here(tmp_path: Path) -> str:
    (tmp_path / "data" / "here").mkdir(parents=True)
    return str(tmp_path / "data")


def test_reproduce_prints_markdown(
    here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_table(monkeypatch)
    assert command(["reproduce", "needy", "--data", here, "--trials", "1", "--seed", "3"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("# T\n") and "| 0 | 3 |" in out and "| 1 |" not in out
    assert err == ""


def test_reproduce_json(
    here: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_table(monkeypatch)
    assert command(["reproduce", "needy", "--data", here, "--json", "--progress"]) == 0
    out, err = capsys.readouterr()
    assert [row["trial"] for row in json.loads(out)["rows"]] == [0, 1]
    assert err.count("[needy]") == 2


def test_reproduce_writes_its_files_and_no_others(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_table(monkeypatch)
    output = tmp_path / "new" / "results"
    assert command(["reproduce", "all", "--data", here, "--output", str(output)]) == 0
    assert sorted(path.name for path in output.iterdir()) == [
        "needy.json",
        "needy.md",
        "simple.json",
        "simple.md",
        "simple.svg",
    ]
    out = capsys.readouterr().out
    assert out == (output / "needy.md").read_text() + "\n" + (output / "simple.md").read_text()
    assert json.loads((output / "needy.json").read_text())["name"] == "needy"


def test_reproduce_resumes_in_the_output_folder(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["reproduce", "needy", "--data", here, "--output", str(tmp_path), "--progress"]
    fake_table(monkeypatch, fail=True)
    with pytest.raises(Interrupted):
        command(arguments)
    assert (tmp_path / "needy.units.json").exists()
    fake_table(monkeypatch)
    capsys.readouterr()
    assert command(arguments) == 0
    assert capsys.readouterr().err.count("(kept)") == 2
    assert not (tmp_path / "needy.units.json").exists() and (tmp_path / "needy.md").exists()


def test_reproduce_keeps_a_named_file(here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_table(monkeypatch)
    file = tmp_path / "mine.json"
    assert command(["reproduce", "needy", "--data", here, "--resume", str(file)]) == 0
    assert len(json.loads(file.read_text())["units"]) == 2


def test_reproduce_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(["reproduce", "--list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES
    assert command(["reproduce", "--list", "--json"]) == 0
    assert [entry["name"] for entry in json.loads(capsys.readouterr().out)] == NAMES


def test_reproduce_all_leaves_out_what_has_no_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_table(monkeypatch)
    assert command(["reproduce", "all", "--json", "--trials", "1"]) == 0
    out, err = capsys.readouterr()
    assert [report["name"] for report in json.loads(out)] == ["simple"]
    assert err == "preflearn: needy left out: no folder here\n"


def test_reproduce_finds_data_by_the_environment(
    here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake_table(monkeypatch)
    assert command(["reproduce", "needy", "--data", here, "--json"]) == 0
    given = capsys.readouterr().out
    monkeypatch.setenv("PREFLEARN_DATA", here)
    for arguments in (["needy"], ["simple"], ["all"]):
        assert command(["reproduce", *arguments, "--json"]) == 0
        out, err = capsys.readouterr()
        assert err == ""
        if arguments == ["needy"]:
            assert out == given
    monkeypatch.setenv("PREFLEARN_DATA", str(tmp_path / "none"))
    assert command(["reproduce", "needy"]) == 2
    assert "PREFLEARN_DATA names" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name an experiment"),
        (["nonsense"], "There is no experiment 'nonsense': choose one of needy, simple."),
        (["needy"], "needy reads here: give --data DIR, the folder that holds it."),
        (["needy", "--data", "{empty}"], "needy reads here, which {empty} does not hold."),
        (["needy", "--data", "{empty}/none"], "there is no such folder"),
        (["all", "--data", "{empty}/none"], "there is no such folder"),
        (["needy", "--data", "{here}", "--folds", "2"], "needy has no --folds"),
        (["simple", "--trials", "2"], "simple has no --trials"),
        (["simple", "--n-basis", "2"], "simple has no --n-basis"),
        (["simple", "--resume", "file.json"], "simple has no --resume"),
        (["simple", "--data", "{here}"], "simple makes its data and takes no --data"),
        (["all", "--resume", "file.json"], "--resume is for one experiment"),
        (["needy", "--data", "{here}", "--trials", "0"], "trials"),
    ],
)
def test_reproduce_refuses_in_one_line(
    arguments: list[str],
    message: str,
    here: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_table(monkeypatch)
    empty = tmp_path / "empty"
    empty.mkdir()
    places = {"here": here, "empty": str(empty)}
    assert command(["reproduce", *(argument.format(**places) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert message.format(**places) in err


# ---------------------------------------------------------------------------------------------------- real data


def test_ohsumed_reaches_the_published_error(real_data: Callable[[str], Path]) -> None:
    from preflearn_experiments import ohsumed

    report = ohsumed.run(data=real_data("letor_ohsumed_v2").parent, alphas=(2.0**4, 2.0**11))
    errors = {row["method"]: row["error"] for row in report.rows}
    assert errors["RankRLS"] < 0.340 and errors["RankSVM, squared hinge"] < 0.345 and errors["RLS"] < 0.355


def test_reuters_has_the_published_documents(real_data: Callable[[str], Path]) -> None:
    documents = read_newswire(real_data("reuters21578").parent, "reuters")
    assert len(documents.texts) == 12_902
    topics = documents.largest_topics(25)
    counts = dict(zip(topics, documents.labels(topics).sum(axis=0), strict=True))
    # The sums of the training and test columns of the published table.
    assert (counts["acq"], counts["earn"], counts["cpi"], counts["reserves"]) == (2369, 3964, 97, 73)
