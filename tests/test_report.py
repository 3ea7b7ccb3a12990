"""Displays and the HTML report: what they show is what was computed, and a browser shows the page as meant."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.browser import Browser, find_browser

from preflearn import RankRLS, RankRLSCV, RankSVMCV
from preflearn.cli.app import run
from preflearn.datasets import load_demo
from preflearn.metrics import concordance, ndcg
from preflearn.report import AlphaPathDisplay, CoefficientsDisplay, QueryRocDisplay, QueryScoresDisplay

matplotlib = pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
matplotlib.use("Agg")


@pytest.fixture(scope="module")
def data():
    X, y, qid, names = load_demo()
    rows = np.isin(qid, np.unique(qid)[:12])
    return X[rows], y[rows], qid[rows], names


def test_alpha_path_of_a_pipeline(data):
    X, y, qid, _ = data
    search = RankRLSCV([0.1, 1.0, 10.0]).fit(StandardScaler().fit_transform(X), y, qid=qid)
    model = make_pipeline(StandardScaler(), search)
    display = AlphaPathDisplay.from_estimator(model).plot()
    np.testing.assert_allclose(display.ax_.lines[0].get_ydata(), search.cv_scores_)
    assert display.ax_.lines[1].get_xdata()[0] == search.alpha_
    assert display.ax_.get_ylabel() == "concordance"
    assert display.figure_ is display.ax_.figure


def test_alpha_path_draws_errors_as_a_band_in_order_of_alpha():
    display = AlphaPathDisplay([10.0, 0.1, 1.0], [0.7, 0.5, 0.6], 10.0, errors=[0.01, 0.03, 0.02]).plot()
    assert display.alphas.tolist() == [0.1, 1.0, 10.0]
    band = display.ax_.collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(0.47) and band[:, 1].max() == pytest.approx(0.71)


def test_alpha_path_of_a_rank_svm_search(data):
    X, y, qid, _ = data
    display = AlphaPathDisplay.from_estimator(RankSVMCV([1.0, 10.0], cv=2).fit(X, y, qid=qid))
    assert display.scores.shape == (2,)


def test_alpha_path_refuses_a_learner_without_a_search(data):
    X, y, qid, _ = data
    with pytest.raises(TypeError, match="RankRLS without cv_scores_"):
        AlphaPathDisplay.from_estimator(RankRLS().fit(X, y, qid=qid))


@pytest.mark.parametrize(("metric", "function"), [("concordance", concordance), ("ndcg@10", ndcg)])
def test_query_scores_are_the_metric_in_each_query(data, metric, function):
    X, y, qid, _ = data
    model = RankRLS().fit(X, y, qid=qid)
    display = QueryScoresDisplay.from_estimator(model, X, y, qid, metric=metric).plot()
    assert (np.diff(display.values) >= 0).all()
    options = {} if metric == "concordance" else {"k": 10}
    for label, value in zip(display.labels, display.values):
        rows = qid == label
        assert value == pytest.approx(function(y[rows], model.predict(X[rows]), **options))
    texts = [text.get_text() for text in display.ax_.texts]
    assert texts == [str(display.labels[0]), str(display.labels[-1])]


def test_query_scores_leave_out_queries_without_a_pair():
    display = QueryScoresDisplay(["a", "b", "c"], [0.7, np.nan, 0.4])
    assert display.labels.tolist() == ["c", "a"]
    with pytest.raises(ValueError, match="defined in none"):
        QueryScoresDisplay(["a"], [np.nan])


@given(rows=st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.integers(0, 4)), min_size=2, max_size=40))
def test_the_area_under_the_mean_roc_curve_is_the_mean_area(rows):
    qid, y, scores = (np.array(column) for column in zip(*rows))
    areas = [
        roc_auc_score(y[qid == q], scores[qid == q])
        for q in np.unique(qid)
        if len(np.unique(y[qid == q])) == 2
    ]
    if not areas:
        with pytest.raises(ValueError, match="classes"):
            QueryRocDisplay.of_predictions(y, scores, qid)
        return
    display = QueryRocDisplay.of_predictions(y, scores, qid)
    assert display.auc == pytest.approx(np.mean(areas))
    assert display.n_queries == len(areas)
    assert (np.diff(display.fpr) >= 0).all() and (np.diff(display.tpr) >= -1e-12).all()
    assert display.tpr[-1] == pytest.approx(1.0)


def test_roc_of_one_ranking_is_drawn():
    display = QueryRocDisplay.from_predictions([0, 1, 1, 0], [0.1, 0.9, 0.4, 0.5]).plot()
    assert "AUC 0.750" in display.ax_.get_legend().get_texts()[1].get_text()


def test_coefficients_are_the_largest_first(data):
    X, y, qid, names = data
    model = RankRLS().fit(X, y, qid=qid)
    display = CoefficientsDisplay.from_estimator(model, feature_names=names).plot(n_features=3)
    assert (np.diff(np.abs(display.values)) <= 0).all()
    assert dict(zip(display.names, display.values)) == pytest.approx(dict(zip(names, model.coef_)))
    assert [bar.get_width() for bar in display.ax_.patches] == pytest.approx(display.values[:3].tolist())
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == display.names[:3]


def test_coefficients_refuse_a_kernel_model(data):
    X, y, qid, _ = data
    with pytest.raises(TypeError, match="permutation_importance"):
        CoefficientsDisplay.from_estimator(RankRLS(kernel="rbf").fit(X, y, qid=qid))


# ------------------------------------------------------------------------------------------------- the page

HOSTILE = '<script>alert("x")</script> & $a_1$ ' + "long" * 30


def write_table(path: Path, *, binary: bool = False, hostile: bool = False) -> None:
    """The demo data as a table, with a query and a feature whose names do not fit."""
    X, y, qid, names = load_demo()
    rows = np.isin(qid, np.unique(qid)[:15])
    X, y, qid = X[rows], y[rows], qid[rows]
    y = (y > 1).astype(int) if binary else y
    names = list(names)
    if hostile:
        names[0] = HOSTILE
        qid = np.where(qid == qid[0], HOSTILE, qid)
    lines = [["target", "qid", *names]] + [[t, q, *x] for t, q, x in zip(y, qid, X.round(4))]
    quoted = [",".join('"' + str(cell).replace('"', '""') + '"' for cell in line) for line in lines]
    path.write_text("\n".join(quoted) + "\n")


@pytest.fixture(scope="module", params=["graded", "two classes, linear, hostile names"])
def page(request, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    other = request.param != "graded"
    write_table(folder / "shop.csv", binary=other, hostile=other)
    kernel = ["--kernel", "linear"] if other else ["--learner", "rankrls"]
    files = [
        str(folder / "shop.csv"),
        "-o",
        str(folder / "m.preflearn"),
        "--report",
        str(folder / "report.html"),
    ]
    assert run(["train", *files, *kernel, "--quiet"]) == 0
    return folder / "report.html"


class Outline(HTMLParser):
    """What a page refers to, and its structure."""

    def __init__(self, text: str):
        super().__init__()
        self.ids: list[str] = []
        self.headings: list[int] = []
        self.outside: list[str] = []
        self.images: list[dict] = []
        self.scripts = 0
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        if "id" in found:
            self.ids.append(found["id"])
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))
        self.scripts += tag == "script"
        if tag == "svg":
            self.images.append(found)
        for name in ("src", "href", "xlink:href", "data", "action"):
            value = found.get(name, "")
            if value and not value.startswith(("#", "data:")):
                self.outside.append(value)


def test_the_page_is_self_contained_and_well_formed(page):
    text = page.read_text(encoding="utf-8")
    outline = Outline(text)
    assert outline.outside == [] and outline.scripts == 0
    assert "@import" not in text and not re.search(r"url\((?!#)", text)
    assert len(outline.ids) == len(set(outline.ids))
    assert outline.headings[0] == 1 and outline.headings.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(outline.headings, outline.headings[1:]))
    assert len(outline.images) >= 3
    assert all(image["role"] == "img" and len(image["aria-label"]) > 40 for image in outline.images)
    for used in set(re.findall(r"url\(#([^)]+)\)", text)) | set(re.findall(r'href="#([^"]+)"', text)):
        assert used in outline.ids
    assert "#0a0b" not in text, "a colour that does not follow light and dark"


def test_the_page_says_what_was_computed(page):
    text = page.read_text(encoding="utf-8")
    for heading in ("What was learned from", "What was chosen, and why", "The choice of alpha", "from worst to best",
                    "Influence of the features", "Comparison with simple baselines", "How certain is the estimate?",
                    "How to reproduce it"):  # fmt: skip
        assert heading in text
    two_classes = "hostile" in page.parent.name or "ROC curve" in text
    assert ("coefficient of the scaled feature" in text) == two_classes
    assert "SHA-256" in text and "preflearn train" in text and "bootstrap over queries" in text


def test_the_first_screen_has_estimate_influence_curve_and_a_query(page, browser):
    browser.open(page, width=1280, scheme="light")
    inside = "[...document.querySelectorAll('{}')].map(e => e.getBoundingClientRect().{})"
    titles = browser.evaluate("[...document.querySelectorAll('.cards h2')].map(e => e.textContent)")
    assert titles[:3] == ["How good is it?", "Influence of the features", "Would more queries help?"]
    assert titles[3].startswith("A typical query: ")
    assert browser.evaluate("document.querySelectorAll('.cards svg.plot').length") == 3
    assert max(browser.evaluate(inside.format(".cards > section:nth-child(-n+2)", "bottom"))) < 900
    assert len(set(browser.evaluate(inside.format(".cards > section", "left")))) == 2, "two beside each other"
    browser.open(page, width=390, scheme="light")
    assert len(set(browser.evaluate(inside.format(".cards > section", "left")))) == 1
    text = page.read_text(encoding="utf-8")
    found = re.search(
        r'aria-label="Held-out concordance ([\d.]+), 95 % interval [^"]*random order: 0.500', text
    )
    assert found and f'<p class="figure">{found[1]} ' in text


def test_names_cannot_become_markup(page):
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text


CHECKS = """(() => {
  const wide = [...document.querySelectorAll('body *')].filter(e => !e.closest('.wide') && !e.closest('svg')
    && e.getBoundingClientRect().right > document.documentElement.clientWidth + 0.5);
  const cut = [...document.querySelectorAll('td, th, dd, dt, p, h1, h2, h3, pre, figure')].filter(e =>
    !e.closest('.wide') && !e.closest('thead') && e.scrollWidth > e.clientWidth + 1
    && getComputedStyle(e).display !== 'inline');
  const rgb = c => c.match(/[\\d.]+/g).map(Number);
  const light = c => { const v = rgb(c).slice(0, 3).map(x => x / 255).map(x => x <= 0.03928 ? x / 12.92 :
    ((x + 0.055) / 1.055) ** 2.4); return 0.2126 * v[0] + 0.7152 * v[1] + 0.0722 * v[2]; };
  const back = e => { for (; e; e = e.parentElement) { const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0) return getComputedStyle(e).backgroundColor; } return 'rgb(255, 255, 255)'; };
  const texts = [...document.querySelectorAll('h1, h2, h3, p, td, th, dt, dd, li, code, figcaption, small, strong')];
  const contrast = texts.map(e => { const a = light(getComputedStyle(e).color), b = light(back(e));
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05); });
  return JSON.stringify({page: document.documentElement.scrollWidth, window: innerWidth,
    wide: wide.map(e => e.tagName + '.' + e.className), cut: cut.map(e => e.tagName + ' ' + e.textContent.slice(0, 40)),
    contrast: Math.min(...contrast), background: getComputedStyle(document.body).backgroundColor,
    scrolls: [...document.querySelectorAll('.wide')].some(e => e.scrollWidth > e.clientWidth + 1),
    plots: [...document.querySelectorAll('svg.plot')].map(e => e.getBoundingClientRect().width),
    line: getComputedStyle(document.querySelector('svg.plot path[style*="--plot-main"]')).stroke});
})()"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    if find_browser() is None:
        pytest.skip("no Chromium to look at the page with")
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390], ids=["desktop", "phone"])
def test_a_browser_shows_the_page_as_meant(page, browser, tmp_path, width, scheme):
    browser.open(page, width=width, scheme=scheme)
    found = json.loads(browser.evaluate(CHECKS))
    shot = browser.screenshot(tmp_path / "page.png")
    assert browser.complaints == []
    assert all(url.startswith(("file:", "data:")) for url in browser.requests) and browser.requests
    assert found["window"] == width
    assert found["page"] <= width, "the page scrolls sideways"
    assert found["wide"] == [] and found["cut"] == [] and not found["scrolls"]
    assert found["contrast"] >= 4.5
    assert all(300 <= plot <= width for plot in found["plots"])
    dark = sum(map(int, re.findall(r"\d+", found["background"])[:3])) < 3 * 128
    assert dark == (scheme == "dark")
    # Something is drawn, in the colours of the scheme.
    pixels = matplotlib.image.imread(shot)[::3, ::3, :3].reshape(-1, 3)
    assert (pixels.mean() < 0.5) == (scheme == "dark")
    assert len(set(((pixels * 255).astype(int) @ [65536, 256, 1]).tolist())) > 50


def test_the_page_prints_on_paper(page, browser):
    browser.open(page, width=1280, scheme="dark")
    paper = browser.print_to_pdf()
    browser.open(page, width=1280, scheme="dark", media="print")
    background = browser.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == "rgb(255, 255, 255)", "dark paper"
    assert paper.startswith(b"%PDF-")
    n_pages = len(re.findall(rb"/Type\s*/Page\b", paper))
    assert 1 <= n_pages <= 10
