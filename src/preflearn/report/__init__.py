"""Reports and plots: what a ranker learned, how sure that is, and what it is worth beside simple baselines.

``displays`` has plots in scikit-learn's habit (``from_estimator``, ``from_predictions``, ``plot``); ``contents`` says
what a report holds, and ``html`` writes it as one self-contained page.
"""

from preflearn.report.contents import Baseline, Choice, DataFile, Influence, TrainingReport
from preflearn.report.displays import (
    AlphaPathDisplay,
    CalibrationDisplay,
    CoefficientsDisplay,
    QueryRocDisplay,
    QueryScoresDisplay,
)
from preflearn.report.html import render_report, write_report

__all__ = [
    "AlphaPathDisplay",
    "Baseline",
    "CalibrationDisplay",
    "Choice",
    "CoefficientsDisplay",
    "DataFile",
    "Influence",
    "QueryRocDisplay",
    "QueryScoresDisplay",
    "TrainingReport",
    "render_report",
    "write_report",
]
