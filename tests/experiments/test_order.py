"""The experiments on order preferences, arguments and interactions, each on small stand-ins for its data."""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from preflearn import OrderPreferenceRegressor, OrderPreferenceRegressorCV, RankRLS
from preflearn_experiments import (
    ExperimentReport,
    arguments,
    nystrom_cv,
    order_benchmarks,
    order_housing,
    order_sentiment,
    order_trials,
    ppi,
    ppi_cross,
)
from preflearn_experiments.report import ReportTable
from preflearn_papers.ppi import candidates, cross_corpus, read_corpus


def compressed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(text.encode("latin-1")))


# --------------------------------------------------------------------------------------------- reports and tables


def test_further_tables_are_printed_and_written() -> None:
    more = [ReportTable("Second", ("b",), [{"b": 0.5}, {"b": None}])]
    report = ExperimentReport("name", "Title", "Done so.", "that.", ("a",), [{"a": 1}], more=more)
    assert "**Second**\n\n| b |\n|---|\n| 0.500 |\n| – |" in str(report)
    assert json.loads(report.to_json())["more"][0]["rows"] == [{"b": 0.5}, {"b": None}]


def test_comparison_of_two_columns_of_errors() -> None:
    without, with_them = [4000.0, 5000.0, 6500.0], [3500.0, 5100.0, 6000.0]
    found = order_trials.compare(without, with_them)
    assert found["without"] == 5167 and found["better in"] == "2 of 3"
    assert found["gain, %"] == pytest.approx(100 * (15500 - 14600) / 15500)
    difference = np.subtract(without, with_them)
    t = difference.mean() / (difference.std(ddof=1) / np.sqrt(3))
    assert found["p"] == pytest.approx(2 * stats.t.sf(t, 2))
    assert order_trials.compare([1.0, 2.0], [1.0, 2.0])["p"] is None
    assert order_trials.compare([1.0], [0.5])["spread with"] is None


def test_a_loss_is_never_called_a_significant_gain() -> None:
    rows = [{"p": 0.001, "gain, %": gain} for gain in (-3.0, 3.0)] + [{"p": None, "gain, %": 1.0}]
    assert order_trials.significant(rows, 0.01) == rows[1:2]


def test_parts_of_a_trial() -> None:
    small, large = (order_trials.draw_trial(100, n, 30, [0, 1]) for n in (10, 20))
    for trial in (small, large):
        assert sorted([*trial.rows, *trial.test]) == list(range(100))
    # The unlabelled rows stay, and the labelled ones of the smaller trial are among those of the larger.
    assert np.array_equal(small.rows[small.unlabelled()], large.rows[large.unlabelled()])
    assert set(small.rows[:10]) < set(large.rows[:20])
    y = np.arange(100.0)
    known = small.known(y)
    assert np.array_equal(known[:10], small.rows[:10]) and np.isnan(known[10:]).all()
    with pytest.raises(ValueError, match="leave none of 100 for the test"):
        order_trials.draw_trial(100, 60, 40, [0])


def test_tables_in_arff_and_with_tabs(tmp_path: Path) -> None:
    folder = tmp_path / order_trials.FOLDER
    text = "% told\n@relation 'r'\n@attribute 'Sex' { M, F}\n@ATTRIBUTE size real\n@attribute y integer\n\n@DATA\n"
    compressed(folder / "a.arff.xz", text + "M, 0.5,3\n% more\nF,1.5,4\n")
    compressed(folder / "b.tsv.xz", "size\ty\n2\t7\n3\t8\n")
    found = order_trials.read_regression(tmp_path, "a.arff.xz", "test")
    assert found.names == ["Sex=M", "Sex=F", "size"]
    assert found.X.tolist() == [[1, 0, 0.5], [0, 1, 1.5]] and found.y.tolist() == [3, 4]
    assert np.allclose(found.standardised().mean(axis=0), 0) and np.allclose(
        found.standardised().std(axis=0), 1
    )
    tabs = order_trials.read_regression(tmp_path, "b.tsv.xz", "test")
    assert tabs.X.tolist() == [[2], [3]] and tabs.y.tolist() == [7, 8]
    with pytest.raises(FileNotFoundError, match="regression_benchmarks/c.arff.xz"):
        order_trials.read_regression(tmp_path, "c.arff.xz", "test")


# ---------------------------------------------------------------------------------------------- order preferences


@pytest.fixture(scope="module")
def towns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stand-ins for Boston (300 rows) and California (1300 rows)."""
    root = tmp_path_factory.mktemp("towns")
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    y = 20 + 5 * X[:, 0] + 3 * np.sin(2 * X[:, 1]) + rng.normal(size=300)
    header = "".join(f"@attribute x{k} real\n" for k in range(3))
    rows = "\n".join(",".join(f"{value:.6g}" for value in row) for row in np.column_stack([X, y]))
    compressed(
        root / order_trials.FOLDER / "housing.arff.xz",
        f"@relation r\n{header}@attribute y real\n@data\n{rows}\n",
    )

    m = 1300
    place = rng.uniform([-119, 36], [-118, 37], size=(m, 2))
    age, income = rng.integers(1, 40, size=m), rng.lognormal(1, 0.3, size=m)
    population = rng.lognormal(7, 0.4, size=m)
    households = population / rng.uniform(1.5, 4.5, size=m)
    bedrooms = population * rng.lognormal(-1, 0.3, size=m)
    value = 4e4 * income + 1e5 * np.log(3 * bedrooms / population) + 2e4 * rng.normal(size=m) + 1e5
    table = np.column_stack([place, age, 5 * bedrooms, bedrooms, population, households, income, value])
    names = [
        "longitude",
        "latitude",
        "housingMedianAge",
        "totalRooms",
        "totalBedrooms",
        "population",
        "households",
    ]
    header = "".join(f"@attribute {name} real\n" for name in [*names, "medianIncome", "medianHouseValue"])
    rows = "\n".join(",".join(f"{value:.8g}" for value in row) for row in table)
    compressed(root / order_trials.FOLDER / "cal.housing.arff.xz", f"@relation r\n{header}@data\n{rows}\n")
    return root


BENCHMARK: dict[str, Any] = {
    "trials": 1,
    "data_sets": ["Boston"],
    "counts": (10, 1000),
    "factors": (0.0, 0.5),
    "labelled": (20,),
}


def test_benchmarks_are_what_the_learners_give(towns: Path) -> None:
    report = order_benchmarks.run(data=towns, **BENCHMARK)
    table = order_trials.read_regression(towns, "housing.arff.xz", "test")
    X, y = table.standardised(), table.y
    without, with_them = [], []
    for trial in range(1):
        order = np.random.default_rng([0, trial]).permutation(300)
        unlabelled, labelled, test = order[:200], order[200:260], order[260:]
        rows = np.concatenate([labelled, unlabelled])
        known = np.concatenate([y[labelled], np.full(200, np.nan)])
        alone = OrderPreferenceRegressorCV().fit(X[labelled], y[labelled])
        without.append(np.abs(alone.predict(X[test]) - y[test]).mean())
        # The oracle's pairs, by the numbers that the experiment draws; order and margin from the truth.
        rng = np.random.default_rng([0, trial, 1])
        first = rng.integers(200, size=1000)
        second = rng.integers(199, size=1000)
        second += second >= first
        pairs = np.array(
            [
                (i, j) if y[rows[i]] >= y[rows[j]] else (j, i)
                for i, j in zip(60 + first, 60 + second, strict=True)
            ]
        )
        margin = 0.5 * (y[rows[pairs[:, 0]]] - y[rows[pairs[:, 1]]])
        model = OrderPreferenceRegressor(alone.alpha_, gamma=alone.gamma_)
        model.fit(X[rows], known, pairs=pairs, margin=margin)
        with_them.append(np.abs(model.predict(X[test]) - y[test]).mean())
    row = report.rows[0]
    assert row["without"] == pytest.approx(np.mean(without), rel=1e-6)
    assert row["with"] == pytest.approx(np.mean(with_them), rel=1e-6)
    assert (row["l"], row["u"], row["test"]) == (60, 200, 40)
    by_p, by_factor, by_labelled = report.more
    # The same setting is in every table.
    same = [by_p.rows[1]["Boston"], by_factor.rows[1]["Boston"], by_labelled.rows[1]["Boston"]]
    assert [table.rows[1][table.columns[0]] for table in report.more] == ["1000", "0.5", "60"]
    assert np.allclose(same, row["gain, %"])


def test_benchmarks_resume_and_draw(towns: Path, tmp_path: Path) -> None:
    options = {**BENCHMARK, "factors": (0.0,), "counts": (10,)}
    first = order_benchmarks.run(data=towns, resume=tmp_path / "units.json", **options)
    again = order_benchmarks.run(data=towns, resume=tmp_path / "units.json", **options)
    assert again.rows == first.rows and again.more == first.more
    figure = first.plot()
    assert len(figure.axes) == 3
    with pytest.raises(ValueError, match="no data set 'Boston2'.*California"):
        order_benchmarks.run(data=towns, data_sets=["Boston2"])
    bare = order_benchmarks.run(
        data=towns, trials=1, data_sets=["Boston"], counts=(), factors=(), labelled=()
    )
    assert bare.more == [] and bare.draw is None and bare.rows[0]["p"] is None


def test_housing_preferences_follow_the_rule(towns: Path) -> None:
    report = order_housing.run(data=towns, trials=1)
    table = order_trials.read_regression(towns, "cal.housing.arff.xz", "test")
    order = np.random.default_rng([0, 0]).permutation(1300)
    rows = np.concatenate([order[1000:1060], order[:1000]])
    x, y, age, _, bedrooms, population, _, income = table.X[rows].T
    miles = np.hypot(69.17 * np.cos(np.radians(37)) * (x[:, None] - x), 69.17 * (y[:, None] - y))
    similar = (miles <= 25) & (np.abs(age[:, None] - age) <= 10) & (np.abs(income[:, None] - income) <= 0.1)
    similar[:60, :60] = False
    more = bedrooms / population
    stated = similar & (more[:, None] > more)
    value = table.y[rows]
    true = (value[:, None] > value)[stated].mean()
    row = report.rows[0]
    assert row["ordered by"] == "bedrooms per resident"
    assert row["pairs"] == stated.sum() and row["true"] == pytest.approx(true)
    assert row["published without"] == 58268 and report.rows[1]["published without"] is None
    # Here the value follows bedrooms per resident: that rule is true, and says more than the others.
    assert row["true"] > max(other["true"] for other in report.rows[1:])


@pytest.fixture(scope="module")
def reviews(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews whose rating is the share of good words, and snippets with the same words."""
    root = tmp_path_factory.mktemp("reviews")
    rng = np.random.default_rng(0)
    good, bad = ([f"{side}{k}" for k in range(60)] for side in ("good", "bad"))
    filler = [f"word{k}" for k in range(200)]

    def text(share: float, n: int) -> str:
        words = [rng.choice(good) if rng.random() < share else rng.choice(bad) for _ in range(n)]
        return " ".join([*words, *rng.choice(filler, size=2 * n)])

    author = order_sentiment.AUTHORS[1]
    ratings = rng.uniform(size=560).round(2)
    folder = root / "movie_scale_v1" / author
    compressed(folder / f"rating.{author}.xz", "".join(f"{rating}\n" for rating in ratings))
    compressed(folder / f"subj.{author}.xz", "".join(f"{text(rating, 15)}\n" for rating in ratings))
    for side, share in (("pos", 0.8), ("neg", 0.2)):
        lines = "".join(f"{text(share, 4)} \x85 caf\xe9\n" for _ in range(300))
        compressed(root / "sentence_polarity_v1" / f"rt-polarity.{side}.xz", lines)
    return root


def test_sentiment_on_words_that_tell(reviews: Path) -> None:
    author = order_sentiment.AUTHORS[1]
    report = order_sentiment.run(data=reviews, trials=2, authors=[author], labelled=[30])
    row = report.rows[0]
    assert row["author"] == "Scott Renshaw" and row["test"] == 30
    assert row["true"] > 0.8
    # Preferences that hold help, and turned round they harm.
    assert report.more[0].rows[0]["gain, %"] > 0 > row["reversed, %"]
    assert report.more[0].rows[0]["without"] == row["without"]
    with pytest.raises(ValueError, match="no author 'Roger'.*Dennis"):
        order_sentiment.run(data=reviews, authors=["Roger"])


def test_snippets_are_read_whole(reviews: Path) -> None:
    """The bytes are Latin-1, and 0x85 is a dot in them, not the end of a line."""
    assert len(order_sentiment._lines(reviews / "sentence_polarity_v1" / "rt-polarity.pos.xz")) == 300


# ------------------------------------------------------------------------------------------------------ arguments


@pytest.fixture(scope="module")
def debates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three topics of two sides; "because" convinces, and so does length a little."""
    root = tmp_path_factory.mktemp("debates")
    rng = np.random.default_rng(0)
    folder = root / "ukp_convarg1"
    folder.mkdir()
    with tarfile.open(folder / "UKPConvArg1Strict-CSV.tar.xz", "w:xz") as archive:
        for topic in ("cats", "tea-or-coffee", "trains"):
            for side in ("yes", "no"):
                texts, worth = [], []
                for _ in range(10):
                    n_words, n_reasons = int(rng.integers(4, 12)), int(rng.integers(0, 4))
                    words = [f"thing{k}" for k in rng.integers(40, size=n_words)] + n_reasons * ["because"]
                    texts.append("A point.<br/> " + " ".join(rng.permutation(words)) + " &amp; so.")
                    worth.append(n_reasons + 0.2 * n_words)
                lines = ["#id\tlabel\ta1\ta2"]
                for i, j in zip(*np.triu_indices(10, 1), strict=True):
                    label = "a1" if worth[i] > worth[j] else "a2"
                    lines.append(f"arg{i}_arg{j}\t{label}\t{texts[i]}\t{texts[j]}")
                content = ("\n".join(lines) + "\n").encode()
                entry = tarfile.TarInfo(f"UKPConvArg1Strict-CSV/{topic}_{side}.csv")
                entry.size = len(content)
                archive.addfile(entry, io.BytesIO(content))
    return root


def test_arguments_left_out_are_those_of_refitting(debates: Path) -> None:
    names = ["RankRLS, all", "RankSVM, all", "RankRLS, all; both sides of a topic left out"]
    report = arguments.run(data=debates, alphas=(10.0,), methods=names)
    found = arguments.read_arguments(debates)
    assert len(found.texts) == 60 and found.pairs.shape == (270, 2)
    assert "<" not in "".join(found.texts) and found.texts[0].endswith("& so.")
    K = sum(arguments.text_kernels(found.texts).values())
    for name, owners in (("RankRLS, all", found.sides), (names[2], found.topics)):
        accuracy = []
        for side in np.unique(found.sides):
            here = found.sides == side
            away = ~np.isin(owners, owners[here])
            # Only the texts of other sides (topics) are trained on.
            kept = np.unique(found.pairs[away])
            pairs = np.searchsorted(kept, found.pairs[away])
            model = RankRLS(10.0, kernel="precomputed").fit_pairs(K[np.ix_(kept, kept)], pairs)
            f = model.predict(K[:, kept])
            accuracy.append(np.mean(f[found.pairs[here, 0]] > f[found.pairs[here, 1]]))
        row = next(row for row in report.rows if row["method"] == name)
        assert row["accuracy"] == pytest.approx(np.mean(accuracy))
        assert row["least"] == pytest.approx(min(accuracy))
    length = np.array([len(text) for text in found.texts])
    ahead = length[found.pairs[:, 0]] - length[found.pairs[:, 1]]
    by_side = [np.mean((np.sign(ahead[found.sides == side]) + 1) / 2) for side in np.unique(found.sides)]
    assert report.rows[0]["accuracy"] == pytest.approx(np.mean(by_side))
    assert all(row["accuracy"] > 0.7 for row in report.rows[1:])
    with pytest.raises(ValueError, match="no method 'guess'"):
        arguments.run(data=debates, methods=["guess"])


def test_penalty_of_a_side_is_chosen_on_the_others() -> None:
    accuracy = np.array([[1.0, 0.5, 0.5], [0.0, 0.6, 0.6]])
    chosen, alphas = arguments._choose(accuracy, [1.0, 10.0])
    # The first side likes 1 best, but the others like 10; for the others the first side decides.
    assert alphas == [10.0, 1.0, 1.0]
    assert chosen.tolist() == [0.0, 0.5, 0.5]


# ------------------------------------------------------------------------------------------- basis vectors, in time


def test_fast_and_plain_hold_out_agree_and_are_timed() -> None:
    report = nystrom_cv.run(
        alphas=(1.0,), n_groups=12, n_splits=3, time_groups=14, time_basis=(1, 2), timed_folds=2
    )
    (table,) = report.more
    assert [(row["folds"], row["basis"]) for row in table.rows] == [
        ("leave-group-out", 14),
        ("ten-fold", 14),
        ("leave-group-out", 28),
        ("ten-fold", 28),
    ]
    for row in table.rows:
        assert row["difference"] < 1e-9
        assert row["times faster"] == pytest.approx(row["refitting, s"] / row["fast, s"])
    assert [row["published"] for row in table.rows] == pytest.approx([6.84, 1.48, 13.95, 2.02], abs=0.01)


def test_times_of_some_folds_are_multiplied_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that ticks once a reading: the fast way takes one tick, so does every refitted fold."""
    ticks = iter(range(100))
    monkeypatch.setattr(nystrom_cv.time, "process_time", lambda: float(next(ticks)))
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), rng.normal(size=40)
    found = nystrom_cv._time_both(
        X, y, np.arange(0, 40, 4), list(np.array_split(np.arange(40), 8)), 2, {"kernel": "rbf"}
    )
    assert (found["fast, s"], found["refitting, s"], found["times faster"]) == (1.0, 8.0, 8.0)


# ---------------------------------------------------------------------------------------------------- interactions


def test_published_figures_across_corpora_fit_each_other() -> None:
    """The article prints the differences from the optimal threshold next to Tables 3 and 5."""
    differences = {
        "training": (
            (22.2, 4.4, 44.5, 56.8),
            (3.0, 0.3, 3.5, 1.6),
            (1.3, 15.3, 8.8, 22.4),
            (0.7, 4.7, 1.9, 0.6),
            (0.7, 0.3, 1.5, 1.0),
        ),
        "ratio": (
            (2.4, 3.4, 3.5, 4.4),
            (4.6, 1.9, 1.1, 2.4),
            (3.1, 2.5, 1.8, 9.4),
            (5.6, 3.3, 1.2, 0.2),
            (6.8, 3.8, 5.8, 1.9),
        ),
    }
    published = {key: np.array(values) for key, values in ppi_cross._PUBLISHED.items()}
    for key, printed in differences.items():
        assert np.allclose(published["optimum"] - published[key], printed, atol=0.11), key
    row = {
        "trained on": "LLL",
        "tested on": "IEPA",
        "AUC": 0.5,
        "training": 0.4,
        "optimum": 0.6,
        "ratio": 0.3,
    }
    told = ppi_cross._beside_published(row)
    assert told["published AUC"] == 74.8 and told["published F, optimal"] == 64.9 and told["F"] == 40.0


def test_interactions_of_one_corpus(real_data, tmp_path: Path) -> None:
    data = real_data("ppi_corpora").parent
    options: dict[str, Any] = {"data": data, "trials": 2, "folds": 3, "resume": tmp_path / "units.json"}
    report = ppi.run(corpora=["LLL"], **options)
    row = report.rows[0]
    assert (row["interactions"], row["others"]) == (164, 166)
    assert row["published F"] == "76.8 (17.8)" and 65 < row["F"] < 90 and 70 < row["AUC"] < 95
    low, high = (float(end) for end in row["AUC of splits"].split("–"))
    assert low - 0.05 <= row["AUC"] <= high + 0.05
    assert row["AUC, sum"] is not None
    parts, curve = report.more
    (made_of,) = parts.rows
    assert made_of["P"] < row["F"] < made_of["R"] or made_of["R"] < row["F"] < made_of["P"]
    assert 45 < made_of["co-occurrence P"] < 55 < made_of["co-occurrence F"] < 75
    points = [(one["training candidates"], one["AUC"]) for one in curve.rows]
    assert points == sorted(points) and points[-1][1] > 70
    # Finished parts serve for another choice of corpora.
    kept = json.loads((tmp_path / "units.json").read_text())
    again = ppi.run(corpora=["LLL"], summed=[], curves=[], **options)
    assert len(again.more) == 1
    assert again.rows[0]["F"] == row["F"] and again.rows[0]["F, sum"] is None
    assert json.loads((tmp_path / "units.json").read_text()) == kept
    with pytest.raises(ValueError, match="no corpus 'AImed'.*BioInfer"):
        ppi.run(data=data, corpora=["AImed"])


def test_interactions_across_corpora(real_data) -> None:
    folder = real_data("ppi_corpora")
    report = ppi_cross.run(data=folder.parent, corpora=["HPRD50", "LLL"], training=["LLL"])
    (row,) = report.rows
    assert (row["trained on"], row["tested on"], row["published AUC"]) == ("LLL", "HPRD50", 69.4)
    assert row["F, optimal"] >= max(row["F"], row["F, by ratio"])
    corpora = [
        candidates(read_corpus(folder / f"{name}-learning-format.xml.xz")) for name in ("HPRD50", "LLL")
    ]
    whole = cross_corpus(corpora, n_jobs=1)
    assert row["AUC"] == pytest.approx(100 * whole.results["LLL", "HPRD50"].auc)
    some = cross_corpus(corpora, training=["LLL"], n_jobs=1)
    assert list(some.results) == [("LLL", "HPRD50")]
    assert np.isnan(some.matrix()).sum() == 3
    with pytest.raises(ValueError, match="training names 'IEPA'"):
        cross_corpus(corpora, training=["IEPA"])
