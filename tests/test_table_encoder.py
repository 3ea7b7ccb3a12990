"""Tables as they come: kinds on tables real in shape, encodings, oddities, saved pipelines."""

from __future__ import annotations

import datetime
import math
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from preflearn import RLS, RankRLS
from preflearn.io import load_model, save_model
from preflearn.preprocessing import TableEncoder, TableWarning, suggest_query_column
from preflearn.tables.cells import day_comes_first, number_style, parse_numbers, parse_times
from preflearn.tables.encoding.columns import hashed_words, leading_directions, rarity, weighted

pa = pytest.importorskip("pyarrow")

M = 300
ROUTES = {
    "pandas": pd.DataFrame,
    "polars": lambda columns: pl.DataFrame(columns, strict=False),
    "pyarrow": pa.table,
    "mapping": dict,
    "rows": lambda columns: [dict(zip(columns, row)) for row in zip(*columns.values())],
    "objects": lambda columns: np.array(list(zip(*columns.values())), dtype=object),
    "text only": lambda columns: {
        name: ["" if value is None else str(value) for value in values] for name, values in columns.items()
    },
}


def days(rng, first="2023-01-01", span=400, size=M):
    return (np.datetime64(first) + rng.integers(0, span, size)).astype(str).tolist()


def moments(rng, size=M):
    return np.char.replace(
        (np.datetime64("2024-01-01T00:00:00") + rng.integers(0, 10**7, size)).astype(str), "T", " "
    ).tolist()


def pick(rng, options, size=M, missing=None, share=0.1):
    chosen = rng.choice(options, size).tolist()
    return [missing if missing is not None and rng.random() < share else value for value in chosen]


WORDS = "the red fast slow printer screen broken again order late parcel thanks please help login error new".split()


def sentences(rng, low=4, high=12, size=M):
    return [" ".join(rng.choice(WORDS, rng.integers(low, high))) for _ in range(size)]


def retail(rng):
    return {
        "visit_id": [f"v{k:05d}" for k in range(M)],
        "session": np.repeat([f"s{k}" for k in range(M // 6)], 6).tolist(),
        "price": [f"{v:,.2f}" for v in rng.lognormal(6, 1.5, M)],
        "discount": [f"{v}%" for v in rng.integers(0, 60, M)],
        "member": pick(rng, ["yes", "no"], missing=""),
        "department": pick(rng, ["garden", "toys", "food"]),
        "visited": moments(rng),
        "items": rng.integers(0, 9, M).tolist(),
        "shop": ["web"] * M,
    }, {
        "visit_id": "identifier", "session": "identifier", "price": "number", "discount": "number", "member": "boolean",
        "department": "category", "visited": "date", "items": "number", "shop": "constant",
    }  # fmt: skip


def clinical(rng):
    return {
        "patient": [f"P-{k:04d}" for k in rng.permutation(M)],
        "age": rng.integers(18, 90, M).tolist(),
        "sex": pick(rng, ["F", "M"]),
        "admitted": [d.replace("-", "/") for d in days(rng)],
        "crp": [None if rng.random() < 0.3 else float(v) for v in rng.lognormal(1, 1, M).round(1)],
        "smoker": pick(rng, ["Y", "N"], missing="?"),
        "grade": rng.integers(1, 5, M).tolist(),
        "clinic_code": rng.choice([101, 205, 310, 404], M).tolist(),
        "note": sentences(rng),
        "trial": [None] * M,
    }, {
        "patient": "identifier", "age": "number", "sex": "category", "admitted": "date", "crp": "number",
        "smoker": "boolean", "grade": "number", "clinic_code": "category", "note": "text", "trial": "empty",
    }  # fmt: skip


def jobs(rng):
    return {
        "ApplicationId": (rng.permutation(M) * 7 + 1000).tolist(),
        "applied": [datetime.date(2024, 1, 1) + datetime.timedelta(int(k)) for k in rng.integers(0, 300, M)],
        "salary": [f"${v:,}" for v in rng.integers(30000, 120000, M)],
        "degree": pick(rng, ["BSc", "MSc", "PhD", "none"]),
        "years": rng.integers(0, 20, M).tolist(),
        "cover letter": sentences(rng, 8, 20),
        "remote": rng.choice([True, False], M).tolist(),
        "postcode": [f"{v:05d}" for v in rng.choice([210, 330, 1510, 20100], M)],
    }, {
        "ApplicationId": "identifier", "applied": "date", "salary": "number", "degree": "category", "years": "number",
        "cover letter": "text", "remote": "boolean", "postcode": "category",
    }  # fmt: skip


def hotels(rng):
    dates = [datetime.date.fromisoformat(d) for d in days(rng)]
    return {
        "arrival": [d.strftime("%d.%m.%Y") for d in dates],
        "booked": [d.strftime("%m/%d/%Y") for d in dates],
        "nights": rng.integers(1, 14, M).tolist(),
        "country": pick(rng, [f"C{k:02d}" for k in range(45)]),
        "room_type": rng.integers(1, 6, M).tolist(),
        "rate": [f"{v:.2f}".replace(".", ",") for v in rng.uniform(40, 900, M)],
        "cancelled": rng.integers(0, 2, M).tolist(),
        "stars": rng.integers(1, 6, M).astype(float).tolist(),
    }, {
        "arrival": "date", "booked": "date", "nights": "number", "country": "category", "room_type": "category",
        "rate": "number", "cancelled": "boolean", "stars": "number",
    }  # fmt: skip


def sensors(rng):
    return {
        "row": list(range(1, M + 1)),
        "time": [t.replace(" ", "T") + "Z" for t in moments(rng)],
        "day": [int(d.replace("-", "")) for d in days(rng)],
        "sensor": rng.integers(1, 9, M).tolist(),
        "temperature": pick(rng, [f"{v:.1f}" for v in rng.normal(20, 5, 50)], missing="-"),
        "humidity": [math.inf if rng.random() < 0.02 else float(v) for v in rng.uniform(0, 100, M)],
        "alarm": pick(rng, ["on", "off"]),
        "firmware": ["1.0.3"] * M,
    }, {
        "row": "identifier", "time": "date", "day": "date", "sensor": "category", "temperature": "number",
        "humidity": "number", "alarm": "boolean", "firmware": "constant",
    }  # fmt: skip


def movies(rng):
    titles = [f"The {a} {b} of {c}" for a in WORDS[:5] for b in WORDS[5:8] for c in WORDS[8:9]]
    return {
        "user_id": np.repeat(np.arange(M // 10), 10).tolist(),
        "title": pick(rng, titles),
        "rating": rng.choice([0.5, 1.0, 2.5, 4.0, 5.0], M).tolist(),
        "year": rng.integers(1960, 2024, M).tolist(),
        "genre": pick(rng, ["Drama", "Comedy", "Action"]),
        "rated_on": rng.integers(1_000_000_000, 1_700_000_000, M).tolist(),
    }, {
        "user_id": "identifier", "title": "category", "rating": "number", "year": "number", "genre": "category",
        "rated_on": "number",
    }  # fmt: skip


def cars(rng):
    return {
        "vin": ["".join(rng.choice(list("ABCDEFGH0123456789"), 12)) for _ in range(M)],
        "make": pick(rng, ["Volvo", "Saab", "Fiat", "Kia"], missing="N/A"),
        "mileage": [f"{v:,}" for v in rng.integers(1000, 300000, M)],
        "doors": rng.choice([2, 4, 5], M).tolist(),
        "first registered": [f"{datetime.date.fromisoformat(d):%d %b %Y}" for d in days(rng, "2005-01-01", 6000)],
        "engine": rng.choice([1.2, 1.6, 2.0], M).tolist(),
        "description": sentences(rng, 5, 15),
        "automatic": pick(rng, ["true", "false"]),
        "owners": pick(rng, ["1", "2", "3", "unknown"]),
    }, {
        "vin": "identifier", "make": "category", "mileage": "number", "doors": "number", "first registered": "date",
        "engine": "number", "description": "text", "automatic": "boolean", "owners": "number",
    }  # fmt: skip


def tickets(rng):
    return {
        "ticket": [f"T{k}" for k in range(M)],
        "opened": [pd.Timestamp(t).to_pydatetime() for t in moments(rng)],
        "subject": sentences(rng, 3, 7),
        "priority": pick(rng, ["low", "high", "urgent"]),
        "agent_id": rng.integers(1, 8, M).tolist(),
        "replies": rng.poisson(3, M).tolist(),
        "product": pick(rng, ["mail", "chat"], missing=None),
        "mixed": [int(k) if k % 2 else "unknown" if k % 20 == 0 else str(k) for k in rng.integers(0, 50, M)],
    }, {
        "ticket": "identifier", "opened": "date", "subject": "text", "priority": "category", "agent_id": "category",
        "replies": "number", "product": "category", "mixed": "number",
    }  # fmt: skip


def papers(rng):
    return {
        "doi": [f"10.1000/{k}" for k in rng.permutation(M)],
        "title": sentences(rng, 5, 12),
        "venue": pick(rng, ["NIPS", "ICML", "JMLR"]),
        "published": rng.integers(1995, 2025, M).tolist(),
        "citations": (rng.pareto(1.5, M) * 5).astype(int).tolist(),
        "accepted": pick(rng, ["Yes", "No"]),
        "submitted": [datetime.date.fromisoformat(d).strftime("%B %-d, %Y") for d in days(rng)],
    }, {
        "doi": "identifier", "title": "text", "venue": "category", "published": "number", "citations": "number",
        "accepted": "boolean", "submitted": "date",
    }  # fmt: skip


TABLES = [retail, clinical, jobs, hotels, sensors, movies, cars, tickets, papers]


def made(maker):
    return maker(np.random.default_rng(7))


@pytest.mark.parametrize("maker", TABLES, ids=lambda maker: maker.__name__)
def test_kinds_are_right_on_tables_real_in_shape(maker):
    columns, expected = made(maker)
    encoder = TableEncoder()
    found = encoder.fit_transform(pd.DataFrame(columns))
    assert encoder.kinds_ == expected
    assert found.shape == (M, len(encoder.get_feature_names_out()))
    assert np.isfinite(found).all() and len(set(encoder.get_feature_names_out())) == found.shape[1]
    assert (found.min(axis=0) < found.max(axis=0)).all(), "a feature without information"


@pytest.mark.parametrize("maker", TABLES, ids=lambda maker: maker.__name__)
@pytest.mark.parametrize("route", ROUTES)
def test_every_kind_of_frame_gives_the_same(maker, route):
    """A file read as texts only, too: the kinds do not depend on who parsed the numbers."""
    columns, _ = made(maker)
    if route in ("polars", "pyarrow"):
        columns.pop("mixed", None)  # these frames have one type per column
    if route == "objects":  # without names, some of which say what whole numbers are
        columns = {f"x{j}": values for j, values in enumerate(columns.values())}
    reference = TableEncoder()
    expected_features = reference.fit_transform(pd.DataFrame(columns))
    encoder = TableEncoder()
    found = encoder.fit_transform(ROUTES[route](columns))
    assert encoder.kinds_ == reference.kinds_
    assert hasattr(encoder, "feature_names_in_") == (route != "objects")
    np.testing.assert_allclose(found, expected_features, atol=1e-6)


# Encodings ----------------------------------------------------------------------------------------------------------


def one(values, kind=None, name="a", **options):
    encoder = TableEncoder(kinds=None if kind is None else {name: kind}, **options)
    return encoder, encoder.fit_transform({name: values})


def test_numbers_with_holes_and_infinities():
    encoder, found = one([1.0, None, 3.5, math.inf, -math.inf, 2.0])
    assert encoder.get_feature_names_out().tolist() == ["a", "a=(missing)"]
    np.testing.assert_array_equal(found, [[1, 0], [2.0, 1], [3.5, 0], [3.5, 0], [1, 0], [2, 0]])
    assert "2 infinite values" in str(encoder.summary_)
    # Missing values in a column without any in training are filled in silently, with the training's median.
    whole, _ = one([1.0, 2.5, 4.0])
    np.testing.assert_array_equal(whole.transform({"a": [None, 7.0, math.inf]}), [[2.5], [7.0], [4.0]])


@pytest.mark.parametrize(
    "texts, values",
    [
        (["1,234", "5", "1,000,000.5"], [1234, 5, 1000000.5]),
        (["12%", " 7.5 %", "-3%"], [12, 7.5, -3]),
        (["$1,200", "-$5", "€7"], [1200, -5, 7]),
        (["1.234,5", "12,25", "7"], [1234.5, 12.25, 7]),
        (["1e3", "+2.", ".5"], [1000, 2, 0.5]),
        (["1,234", "2,345"], [1234, 2345]),
    ],
)
def test_numbers_written_as_text(texts, values):
    np.testing.assert_array_equal(parse_numbers(texts, number_style(texts)), values)
    _, found = one(texts)
    np.testing.assert_array_equal(found[:, 0], values)


def test_stray_words_among_numbers_are_missing_and_told():
    texts = [str(k) + ".5" for k in range(40)] + ["broken", "NA"]
    encoder, found = one(texts)
    assert found[-2:, 1].tolist() == [1.0, 1.0] and found[:-2, 1].sum() == 0
    assert "1 values that cannot be read as number are treated as missing ('broken')" in str(encoder.summary_)
    with pytest.warns(TableWarning, match=r"column 'a': 2 rows with a value that cannot be read.*'many'"):
        encoder.transform({"a": ["many", "3", "many"]})
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # told once
        encoder.transform({"a": ["many", "3"]})


@given(st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 12, 31)), st.booleans())
def test_dates_in_usual_layouts(moment, day_first):
    moment = moment.replace(microsecond=0)
    expected = moment.replace(tzinfo=datetime.UTC).timestamp()
    first = "%d/%m" if day_first else "%m/%d"
    layouts = ["%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M:%S", "%Y/%m/%d %H:%M:%S", f"{first}/%Y %H:%M:%S",
               "%Y-%m-%dT%H:%M:%SZ", "%d %b %Y %H:%M:%S", "%B %d, %Y, %I:%M:%S %p",
               "%Y-%m-%dT%H:%M:%S.000+00:00"]  # fmt: skip
    np.testing.assert_allclose(parse_times([moment.strftime(one) for one in layouts], day_first), expected)


@given(st.text(alphabet="0123456789-/.: TZ", min_size=8, max_size=19))
def test_what_is_read_as_a_date_is_one(text):
    (found,) = parse_times([text], True)
    (alone,) = parse_times([" " + text], True)  # of a length that array arithmetic does not take
    assert (math.isnan(found) and math.isnan(alone)) or found == alone


def test_days_that_do_not_exist_are_none():
    assert np.isnan(
        parse_times(["2023-02-29", "2024-13-01", "2024-00-10", "31/04/2024", "2024-01-01 24:00"], True)
    ).all()
    assert parse_times(["2024-02-29", "2024-01-01T12:00+02:00"], True).tolist() == [
        1709164800.0,
        1704103200.0,
    ]


def test_order_of_day_and_month_is_a_matter_of_the_column():
    assert day_comes_first(["03/04/2024", "25/04/2024"]) == (True, False)
    assert day_comes_first(["03/04/2024", "04/25/2024"]) == (False, False)
    assert day_comes_first(["03/04/2024"]) == (False, True)
    assert day_comes_first(["03.04.2024"]) == (True, True)
    encoder, _ = one(["03/04/2024", "05/04/2024", "07/08/2024"])
    assert "other way round" in str(encoder.summary_)


def test_parts_of_dates():
    moments = [datetime.datetime(2024, 2, 29, 13, 5), datetime.datetime(2023, 12, 31), None]
    encoder, found = one(moments)
    values = dict(zip(encoder.get_feature_names_out(), found[:2].T))
    assert values["a.year"].tolist() == [2024, 2023] and values["a.month"].tolist() == [2, 12]
    assert values["a.day"].tolist() == [29, 31] and values["a.weekday"].tolist() == [3, 6]
    assert values["a.hour"].tolist() == [13, 0] and values["a=(missing)"].tolist() == [0, 0]
    np.testing.assert_allclose(values["a.days"], [60 + 13 / 24 + 5 / 1440, 0])
    assert np.isfinite(found[2]).all() and found[2, -1] == 1
    # The same column as texts, and dates before and after those of the training.
    later = encoder.transform({"a": ["2025-01-01", "1969-12-31 23:00", "NaT"]})
    names = encoder.get_feature_names_out().tolist()
    assert later[:2, names.index("a.year")].tolist() == [2025, 1969]
    assert later[1, names.index("a.hour")] == 23 and later[1, names.index("a.weekday")] == 2


def test_unseen_categories_are_other_counted_and_told():
    encoder, found = one(["a", "b", "a", "b", None])
    assert encoder.get_feature_names_out().tolist() == ["a=a", "a=b", "a=(missing)"]
    with pytest.warns(TableWarning, match=r"2 rows with a category not seen in training \('zebra', 'yak'\)"):
        new = encoder.transform({"a": ["zebra", "a", None, "yak"]})
    np.testing.assert_array_equal(new, [[0, 0, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]])
    encoder.transform({"a": ["zebra"]})
    assert encoder.unseen_ == {"a": 3}


def test_rare_categories_share_a_feature():
    values = ["a"] * 5 + ["b"] * 4 + ["c", "d"]
    encoder, found = one(values, max_categories=2)
    assert encoder.get_feature_names_out().tolist() == ["a=a", "a=b", "a=(other)"]
    assert found[-2:].tolist() == [[0, 0, 1], [0, 0, 1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # seen, only rare
        assert encoder.transform({"a": ["d"]}).tolist() == [[0, 0, 1]]
    with pytest.warns(TableWarning, match="'e'"):
        assert encoder.transform({"a": ["e"]}).tolist() == [[0, 0, 1]]


def test_labels_do_not_depend_on_the_type_that_a_frame_gives_them():
    encoder, _ = one([1, 2, 1, 2, 3, 3] * 5, "category")
    for values in ([2.0, None], ["2", None], [2, None], pd.array([2, None], dtype="Int64")):
        found = encoder.transform(pd.DataFrame({"a": values}))
        assert found.tolist() == [[0, 1, 0], [0, 0, 0]]


def test_one_value_with_holes_keeps_the_holes():
    encoder, found = one([4.0, None, 4.0])
    assert encoder.get_feature_names_out().tolist() == ["a=(missing)"] and found.tolist() == [[0], [1], [0]]


# Texts --------------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=30), max_size=8))
def test_words_are_hashed_alike_wherever_they_stand(texts):
    """Signed counts by word: those of each word alone, added up."""
    found = hashed_words(texts, 61).toarray()
    for row, text in enumerate(texts):
        lower = text.lower()
        words = "".join(sign if sign.isalnum() or ord(sign) >= 0xFFFF else " " for sign in lower).split(" ")
        expected = np.zeros(61)
        for word, count in Counter(word for word in words if word).items():
            alone = hashed_words([word], 61).toarray()[0]
            assert np.abs(alone).sum() == 1
            expected += count * alone
        np.testing.assert_array_equal(found[row], expected)


def test_hashes_of_different_words_fall_evenly():
    words = [f"{a}{b}" for a in "abcdefghij" for b in range(400)]
    buckets = hashed_words(words, 1024)
    counts = np.bincount(buckets.indices, minlength=1024)
    assert ((counts - 4000 / 1024) ** 2 / (4000 / 1024)).sum() < 1024 + 4 * math.sqrt(2 * 1024)  # chi squared
    assert abs(buckets.data.sum()) < 4 * math.sqrt(4000)


def test_the_hash_of_a_word_is_that_of_earlier_versions():
    texts = ["Red wine, a_b x²", "Ünïcödé “quoted” 東京", "ΣΑΣ\nσας", "two 😀 7"]
    found = hashed_words(texts, 1 << 20)
    expected = [
        [(210850, -1.0), (224169, -1.0), (636532, -1.0), (947379, 1.0), (1026423, 1.0)],
        [(90556, -1.0), (388284, 1.0), (391803, -1.0)],
        [(786745, -2.0)],
        [(39193, -1.0), (242881, -1.0), (477390, 1.0)],
    ]
    assert [
        sorted(zip(row.indices.tolist(), row.data.tolist())) for row in (found[[k]] for k in range(4))
    ] == expected


FRAMES_OF_TEXTS = {
    "pandas": lambda texts: pd.DataFrame({"t": pd.array([None, *texts], dtype="string")}).iloc[1:],
    "polars": lambda texts: pl.DataFrame({"t": [None, *texts]})[1:],
    "pyarrow": lambda texts: pa.table({"t": pa.chunked_array([[None, *texts[:7]], texts[7:]])}).slice(1),
}


@pytest.mark.parametrize("frame", FRAMES_OF_TEXTS)
@pytest.mark.parametrize("odd", ["A, B-c", "Ünïcödé", None])
def test_texts_of_frames_and_as_strings_agree(frame, odd):
    texts = [*sentences(np.random.default_rng(0)), odd]
    encoder = TableEncoder(kinds={"t": "text"})
    found = encoder.fit_transform(FRAMES_OF_TEXTS[frame](texts))
    assert encoder.summary_["t"].n_missing == (odd is None)
    np.testing.assert_allclose(
        found, TableEncoder(kinds={"t": "text"}).fit_transform({"t": texts}), atol=1e-12
    )


@pytest.mark.parametrize("frame", FRAMES_OF_TEXTS)
@pytest.mark.parametrize("odd", ["2024-02-29 12:00:00", "2023-02-29 12:00:00", "3 May 2024", "soon", None])
def test_dates_of_frames_and_as_strings_agree(frame, odd):
    texts = [*moments(np.random.default_rng(0)), odd]
    found = TableEncoder().fit_transform(FRAMES_OF_TEXTS[frame](texts))
    np.testing.assert_array_equal(found, TableEncoder().fit_transform({"t": texts}))


@pytest.mark.parametrize("threads", [1, 3])
def test_a_whole_table_in_arrow_form_and_as_objects_agree(monkeypatch, threads):
    """Bit for bit, also where threads share the texts, rows are filled in blocks and medians come from samples."""
    rng = np.random.default_rng(0)
    m = 1000
    table = {
        "number": rng.normal(size=m).round(2),
        "count": rng.integers(0, 9, m).astype(float),
        "colour": pick(rng, ["red", "blue", " green ", "NA"], m),
        "day": days(rng, size=m),
        "moment": moments(rng, size=m),
        "text": [" ".join(rng.choice(WORDS, int(rng.integers(0, 90)))) + f" no{k}" for k in range(m)],
    }
    for name in ("colour", "day", "text"):
        table[name] = [None if rng.random() < 0.05 else value for value in table[name]]
    expected = TableEncoder().fit_transform({name: list(column) for name, column in table.items()})
    monkeypatch.setattr("preflearn.numerics.threads.n_threads", lambda: threads)
    for frame in (pd.DataFrame(table), pl.DataFrame(table), pa.table(table), table):
        encoder = TableEncoder()
        np.testing.assert_array_equal(encoder.fit_transform(frame), expected)
        np.testing.assert_array_equal(encoder.transform(frame), expected)


def test_leading_directions_span_the_leading_space():
    rng = np.random.default_rng(0)
    Z = sp.csr_array((rng.normal(size=(200, 6)) * [9, 8, 7, 0.01, 0.01, 0.01]) @ rng.normal(size=(6, 40)))
    V = leading_directions(Z, 3)
    exact = np.linalg.svd(Z.toarray())[2][:3].T
    np.testing.assert_allclose(V.T @ V, np.eye(3), atol=1e-10)
    np.testing.assert_allclose(V @ V.T, exact @ exact.T, atol=1e-4)
    few = sp.csr_array(np.eye(2, 5))
    assert leading_directions(few, 4).shape == (5, 2)


def test_tfidf_rows_have_length_one():
    Z = hashed_words(["red red wine", "wine", ""], 32)
    idf = rarity(Z)
    (wine,) = hashed_words(["wine"], 32).indices
    np.testing.assert_allclose(idf[wine], 1 + math.log(4 / 3))
    np.testing.assert_allclose(sp.linalg.norm(weighted(Z, idf), axis=1), [1, 1, 0])


def test_words_make_the_output_sparse():
    texts = sentences(np.random.default_rng(0))
    table = {"t": texts, "n": list(range(0, 2 * M, 2))}
    found = TableEncoder(kinds={"t": "words:128"}).fit_transform(table)
    assert sp.issparse(found) and found.shape == (M, 129)
    dense = TableEncoder(kinds={"t": "words:128"}, sparse_output=False).fit_transform(table)
    np.testing.assert_array_equal(found.toarray(), dense)


# What a caller says, and what is wrong -------------------------------------------------------------------------------


def test_kinds_asked_for():
    table = {"a": [1, 2, 3, 1], "b": ["x", "y", "x", "y"], "c": ["u", "v", "w", "u"], "d": [1, 2, 3, 4]}
    encoder = TableEncoder(kinds={"a": "onehot", "b": ["y"], "c": "drop"}).fit(table)
    assert encoder.get_feature_names_out().tolist() == ["a=1", "a=2", "a=3", "b=y", "d"]
    assert encoder.kinds_["c"] == "drop"


def test_all_problems_in_one_message():
    frame = pd.DataFrame([[1, [1], "x", 2], [2, [2], "y", 4]], columns=["a", "b", "c", "c"])
    with pytest.raises(ValueError) as caught:
        TableEncoder(kinds={"nope": "number", "a": "numbers"}).fit(frame)
    message = str(caught.value)
    assert "4 reasons" in message
    for part in ("'nope'", "'numbers'", "'b' holds a list in row 0", "'c' appears 2 times"):
        assert part in message
    with pytest.raises(ValueError, match=r"'a' is to be read as number, and 2 values cannot be \('x', 'y'\)"):
        one(["x", "y", "1"], "number")
    assert TableEncoder(kinds={"b": "drop"}).fit(frame.iloc[:, :3]).kinds_["b"] == "drop"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_categories": 0}, "max_categories"),
        ({"text_features": 1.5}, "text_features"),
        ({"sparse_output": "yes"}, "sparse_output"),
        ({"dtype": "int"}, "dtype"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        TableEncoder(**options).fit({"a": [1, 2]})
    with pytest.raises(TypeError, match="kinds must map"):
        TableEncoder(kinds=["a"]).fit({"a": [1, 2]})


def test_columns_are_found_by_name():
    columns, _ = made(clinical)
    frame = pd.DataFrame(columns)
    encoder = TableEncoder().fit(frame)
    expected = encoder.transform(frame)
    np.testing.assert_array_equal(encoder.transform(frame[frame.columns[::-1]]), expected)
    np.testing.assert_array_equal(encoder.transform(frame.drop(columns=["patient", "trial"])), expected)
    with pytest.warns(TableWarning, match="not in training, ignored: 'new'"):
        np.testing.assert_array_equal(encoder.transform(frame.assign(new=1)), expected)
    with pytest.raises(ValueError) as caught:
        encoder.transform(frame.drop(columns=["age", "note"]))
    assert "'age'" in str(caught.value) and "'note'" in str(caught.value)


def test_inputs_are_left_alone():
    columns, _ = made(sensors)
    frame = pd.DataFrame(columns)
    before = frame.copy(deep=True)
    TableEncoder().fit_transform(frame)
    pd.testing.assert_frame_equal(frame, before)


# Among scikit-learn's tools ------------------------------------------------------------------------------------------


BY_NAME = {
    "check_dataframe_column_names_consistency": "columns are found by name: their order does not matter"
}


@parametrize_with_checks(
    [TableEncoder(), TableEncoder(dtype="float32", sparse_output=True)],
    expected_failed_checks=lambda _: BY_NAME,
)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def test_output_as_a_frame():
    columns, _ = made(cars)
    frame = pd.DataFrame(columns, index=np.arange(M) + 7)
    encoder = TableEncoder().set_output(transform="pandas")
    found = encoder.fit_transform(frame)
    assert list(found) == encoder.get_feature_names_out().tolist() and (found.index == frame.index).all()
    assert clone(encoder).get_params() == encoder.get_params()


@pytest.mark.parametrize("maker", TABLES, ids=lambda maker: maker.__name__)
def test_a_saved_pipeline_takes_frames(maker, tmp_path):
    columns, _ = made(maker)
    frame = pd.DataFrame(columns)
    y = np.random.default_rng(0).normal(size=M)
    pipeline = make_pipeline(TableEncoder(), StandardScaler(), RLS()).fit(frame, y)
    save_model(pipeline, tmp_path / "model.preflearn")
    loaded = load_model(tmp_path / "model.preflearn")
    np.testing.assert_array_equal(loaded.predict(frame), pipeline.predict(frame))
    np.testing.assert_allclose(loaded.predict(frame.iloc[3:4]), pipeline.predict(frame)[3:4])
    assert str(loaded[0].summary_) == str(pipeline[0].summary_)


def test_words_are_saved_too(tmp_path):
    table = {"t": sentences(np.random.default_rng(0))}
    y = np.random.default_rng(0).normal(size=M)
    pipeline = make_pipeline(TableEncoder(kinds={"t": "words"}), RankRLS()).fit(table, y)
    save_model(pipeline, tmp_path / "model.preflearn")
    np.testing.assert_array_equal(
        load_model(tmp_path / "model.preflearn").predict(table), pipeline.predict(table)
    )


def test_the_column_of_another_length_is_named():
    with pytest.raises(ValueError, match=r"most have 3 rows, but 'c' \(1\)\."):
        TableEncoder().fit({"a": [1.0, 2.0, 3.0], "c": [1.0], "b": ["x", "y", "z"]})


def test_works_without_pandas_and_without_compiling():
    code = (
        "import sys; sys.modules['pandas'] = None; sys.modules['polars'] = None\n"
        "from preflearn.preprocessing import TableEncoder\n"
        "table = {'a': ['x', 'y', 'x'], 'b': [1.0, None, 2.0], 'c': ['2024-01-01', '2024-01-05', '']}\n"
        "print(TableEncoder().fit_transform(table).shape, 'numba' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "(3, 8) False"


# The query column ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "maker, target, expected",
    [(retail, "items", "session"), (movies, "rating", "user_id"), (papers, "citations", None), (cars, None, None),
     (hotels, None, None), (clinical, "grade", None), (sensors, None, None), (jobs, None, None)],
)  # fmt: skip
def test_query_column_is_suggested(maker, target, expected):
    frame = pd.DataFrame(made(maker)[0])
    assert suggest_query_column(frame, target=target) == expected
    if expected is not None:
        summary = TableEncoder().fit(frame).summary_
        assert summary.query == expected and f"{expected!r} looks like the query column" in str(summary)


def test_a_query_column_whose_rows_are_alike_is_none():
    table = {"session": ["a", "a", "b", "b"], "grade": [1, 1, 2, 2]}
    assert suggest_query_column(table) is None
    table["price"] = [3.0, 4.0, 4.0, 6.0]
    assert suggest_query_column(table) == suggest_query_column(table, target="price") == "session"
    assert suggest_query_column(table, target="grade") is None
    with pytest.raises(ValueError, match="target='y' is not a column"):
        suggest_query_column(table, target="y")


def test_saved_models_predict_without_a_compiler(tmp_path):
    """A fresh process that loads a model and predicts a few rows waits for no compiled loop."""
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(20), 10)
    table = {"x": rng.normal(size=200), "colour": pick(rng, ["red", "blue"], 200), "day": days(rng, size=200)}
    y = table["x"] + rng.normal(size=200)
    X = table["x"][:, None]
    pipeline = make_pipeline(TableEncoder(), RankRLS()).fit(table, y, rankrls__qid=qid)
    models = {"table": pipeline, "linear": RankRLS().fit(X, y, qid=qid)}
    models["rbf"] = RankRLS(kernel="rbf").fit(X, y, qid=qid)
    for name, model in models.items():
        save_model(model, tmp_path / f"{name}.preflearn")
    code = (
        "import sys\nfrom preflearn.io import load_model\n"
        "rows = {'table': {'x': [0.5], 'colour': ['red'], 'day': ['2023-05-01']}}\n"
        f"for name in {list(models)!r}:\n"
        f"    load_model({str(tmp_path)!r} + f'/{{name}}.preflearn').predict(rows.get(name, [[0.5]]))\n"
        "    print(name, 'numba' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{name} False" for name in models]
