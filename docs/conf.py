"""How the documentation is built: ``sphinx-build -W docs docs/_build``."""

from __future__ import annotations

import importlib
import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

import preflearn

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "benchmarks"))
import audit
import figures

project = "preflearn"
author = "preflearn developers"
copyright = "2026, preflearn developers"
version = release = preflearn.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]

source_suffix = {".md": "markdown", ".rst": "restructuredtext"}
exclude_patterns = ["_build", "experiments/results"]
templates_path = ["_templates"]
myst_enable_extensions = ["amsmath", "attrs_inline", "colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False

# The examples run while the documentation is built; `-D plot_gallery=0` leaves that out.
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "download_all_examples": False,
    "show_signature": False,
    "write_computation_times": False,
    "min_reported_time": 1e9,
    "parallel": 2,
}

# Prompts and output stay on the page and out of the clipboard.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "pydata_sphinx_theme"
html_title = "preflearn"
html_static_path = ["_static"]
html_css_files = ["preflearn.css"]
html_show_sourcelink = False
html_sidebars = {page: [] for page in ("index", "getting_started", "changelog")}
# Formulas are MathML, which browsers draw themselves: no script and no other server.
html_math_renderer = "mathml"
html_theme_options = {
    "logo": {"text": "preflearn", "image_light": "_static/logo.svg", "image_dark": "_static/logo.svg"},
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
}
html_context = {"default_mode": "auto"}
html_favicon = "_static/logo.svg"


def skip_inherited_from_scikit_learn(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> Any:
    """Methods of scikit-learn's base classes are documented there."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn.") else None


def escape_plain_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """In the text of a docstring ``coef_`` is no link and ``|f|`` no substitution; examples and formulas stay."""
    in_example, formula = False, None
    for number, line in enumerate(lines):
        indent = len(line) - len(line.lstrip())
        if line.strip() and formula is not None and indent <= formula:
            formula = None
        if line.lstrip().startswith(".. math::"):
            formula = indent
        in_example = bool(line.strip()) and (in_example or line.lstrip().startswith(">>>"))
        if not in_example and formula is None:
            parts = re.split(r"(``.*?``|`.*?`)", line)
            parts[::2] = [
                re.sub(r"(\b[A-Za-z]\w*)_(?=[\s,.;:)\]*]|$)", r"\1\\_", part).replace("|", r"\|")
                for part in parts[::2]
            ]
            lines[number] = "".join(parts)


def visit_formula(writer: Any, node: Any) -> None:
    """A formula as MathML, inline or on lines of its own."""
    is_block = isinstance(node, nodes.math_block)
    formula = tex2mathml(node.astext().replace(r"\dots", r"\ldots"), as_block=is_block)
    if is_block:
        # The anchor that references to an equation lead to, and the number they show.
        number = f'<span class="eqno">({node["number"]})</span>' if node.get("number") else ""
        formula = writer.starttag(node, "div", "", CLASS="math") + number + formula + "</div>"
    writer.body.append(formula)
    raise nodes.SkipNode


def add_further_pages(app: Any, page: str, source: list[str]) -> None:
    """Pages of the user guide that no group names go to the end of its contents."""
    if page == "user_guide/index":
        named = set(re.findall(r"^\w+$", source[0], flags=re.MULTILINE)) | {"index"}
        found = sorted(path.stem for path in Path(app.srcdir, "user_guide").glob("*.md"))
        source[0] = source[0].replace("(further pages)", "\n".join(one for one in found if one not in named))


def check_figures(app: Any) -> None:
    """A page that says something else than the results of the benchmarks is not built."""
    if different := figures.differences():
        raise ExtensionError("figures differ from benchmarks/results:\n" + "\n".join(different))


def add_provenance(app: Any, page: str, source: list[str]) -> None:
    """At the end of a page, with which version its figures were measured."""
    path = Path(app.srcdir, f"{page}.md")
    if path in audit.pages():
        source[0] += audit.provenance(path)


def write_index_of_names(app: Any) -> None:
    """A table with a line for every public name, which the reference's front page includes."""
    parts = []
    ours = [f"preflearn.{module}" for module in preflearn._MODULES]
    for module in ("preflearn", *ours, "preflearn_papers.parses", "preflearn_papers.ppi"):
        home = importlib.import_module(module)
        names = sorted(name for name in home.__all__ if not name.startswith("_"))
        title = home.__name__
        parts += [title, "-" * len(title), "", ".. autosummary::", "   :nosignatures:", ""]
        parts += [*(f"   ~{title}.{name}" for name in names), ""]
    path = Path(app.srcdir) / "reference" / "generated" / "names.txt"
    path.parent.mkdir(exist_ok=True)
    text = "\n".join(parts)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    app.connect("builder-inited", check_figures)
    app.connect("builder-inited", write_index_of_names)
    app.connect("source-read", add_provenance)
    app.add_html_math_renderer("mathml", (visit_formula, None), (visit_formula, None))
    app.connect("source-read", add_further_pages)
    app.connect("autodoc-skip-member", skip_inherited_from_scikit_learn)
    app.connect("autodoc-process-docstring", escape_plain_text, priority=900)
