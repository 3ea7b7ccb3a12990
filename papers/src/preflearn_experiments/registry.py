"""The table of the published experiments: name, module, what it shows, and the data folders that it reads.

A module is imported when its experiment is asked for, so that listing the names costs nothing. To add an experiment,
write a module with a function ``run(*, data=None, ..., seed=0, verbose=0, resume=None) -> ExperimentReport`` and add
a line here. What the command line may pass follows from the arguments that ``run`` has: ``data`` is the folder that
holds those of the table, ``seed`` decides what is drawn, ``verbose`` prints each finished part, and ``resume`` names a
file that keeps the finished parts (`resume.Resume`).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from .report import ExperimentReport


@dataclass(frozen=True)
class Experiment:
    """One line of the table.

    Attributes
    ----------
    name : str
        As in ``preflearn reproduce NAME``.
    module : str
        Name of the module in this package.
    description : str
        One line.
    folders : tuple of str
        Folders of data that it reads.
    optional_data : bool
        Whether it makes data of its own where none are given.
    """

    name: str
    module: str
    description: str
    folders: tuple[str, ...] = ()
    optional_data: bool = False

    @property
    def run(self) -> Callable[..., ExperimentReport]:
        """The function of the experiment; imports its module."""
        return import_module(f".{self.module}", __package__).run

    def arguments(self) -> frozenset[str]:
        """Names of the arguments of `run`."""
        return frozenset(inspect.signature(self.run).parameters)

    def missing_folders(self, data: str | Path | None) -> list[str]:
        """Those of the folders that are not in ``data``; none where data may be left out and were."""
        if data is None:
            return [] if self.optional_data else list(self.folders)
        return [folder for folder in self.folders if not (Path(data) / folder).is_dir()]


_TABLE = (
    Experiment(
        "ohsumed",
        "ohsumed",
        "linear RankRLS, RLS and RankSVM on OHSUMED with the official folds",
        ("letor_ohsumed_v2",),
    ),
    Experiment(
        "ohsumed-kernel",
        "ohsumed_kernel",
        "the same with an RBF kernel and three-level labels; MAP and NDCG@10",
        ("letor_ohsumed_v2", "letor_ohsumed_v3"),
    ),
    Experiment(
        "reuters",
        "reuters",
        "AUC of 25 topics of Reuters-21578 from 500 training documents",
        ("reuters21578",),
    ),
    Experiment("jester", "jester", "which joke will a user like better: five costs", ("jester1",)),
    Experiment(
        "runtime",
        "runtime",
        "training time of kernel RankRLS against explicit pairs",
        ("reuters21578",),
    ),
    Experiment(
        "nystrom-cv",
        "nystrom_cv",
        "held-out basis vectors left in or taken out, and the time of fast cross-validation",
        ("ppi_corpora",),
        optional_data=True,
    ),
    Experiment(
        "sparse",
        "sparse",
        "RLS and RankRLS, full on r inputs or with r basis vectors on 4r inputs",
        ("letor_ohsumed_v2",),
    ),
    Experiment(
        "parses",
        "parses",
        "the parses of a sentence in the order of their rightness, basic and reduced-set learners",
        ("parse_ranking",),
    ),
    Experiment(
        "parse-costs",
        "parse_costs",
        "the same with three costs, relevant and all pairs",
        ("parse_ranking",),
    ),
    Experiment("auc-estimation", "auc_estimation", "bias and spread of cross-validated estimates of the AUC"),
    Experiment(
        "transductive",
        "transductive",
        "transductive RankRLS as the number of scored queries shrinks",
        ("letor_ohsumed_v2", "mslr_sample"),
    ),
    Experiment(
        "ppi",
        "ppi",
        "protein-protein interactions with the all-paths graph kernel, five corpora",
        ("ppi_corpora",),
    ),
    Experiment(
        "ppi-cross",
        "ppi_cross",
        "trained on one corpus of interactions, tested on the others",
        ("ppi_corpora",),
    ),
    Experiment(
        "leaks",
        "leaks",
        "dependent rows divided and held out whole: patients, parses of a sentence, pairs of a document",
        ("clinical_repeated", "parse_ranking", "ppi_corpora"),
    ),
    Experiment(
        "order-benchmarks",
        "order_benchmarks",
        "regression with order preferences on benchmark data",
        ("regression_benchmarks",),
    ),
    Experiment(
        "order-sentiment",
        "order_sentiment",
        "film reviews with preferences from a classifier of snippets",
        ("movie_scale_v1", "sentence_polarity_v1"),
    ),
    Experiment(
        "order-housing",
        "order_housing",
        "house prices with preferences between neighbours",
        ("regression_benchmarks",),
    ),
    Experiment(
        "arguments",
        "arguments",
        "convincing arguments from pairwise preferences alone",
        ("ukp_convarg1",),
    ),
    Experiment(
        "davis",
        "davis",
        "drug-target affinities: new pairs, new drugs, new targets, both new",
        ("davis_kinase",),
    ),
    Experiment(
        "elicitation",
        "elicitation",
        "how many comparisons an order needs, asked by information or at random",
    ),
)

EXPERIMENTS: dict[str, Experiment] = {experiment.name: experiment for experiment in _TABLE}


def names() -> list[str]:
    """The names of all experiments.

    Examples
    --------
    >>> names()[:3]
    ['ohsumed', 'ohsumed-kernel', 'reuters']
    """
    return list(EXPERIMENTS)


def get(name: str) -> Experiment:
    """The experiment of a name.

    Raises
    ------
    ValueError
        If there is none; the message lists the names.

    Examples
    --------
    >>> get("jester").folders
    ('jester1',)
    """
    if name not in EXPERIMENTS:
        raise ValueError(f"There is no experiment {name!r}: choose one of {', '.join(names())}.")
    return EXPERIMENTS[name]
