"""Reports and plots: what a ranker learned, how certain that is, and how it compares with simple baselines.

``displays`` has plots with a scikit-learn API (``from_estimator``, ``from_predictions``, ``plot``); ``contents`` says
what a report holds, ``html`` writes it as one self-contained page, ``card`` as a model card in Markdown.
"""

from .contents import Baseline, Choice, DataFile, Influence, TrainingReport
from .displays import (
    AlphaPathDisplay,
    CalibrationDisplay,
    CoefficientsDisplay,
    LearningCurveDisplay,
    QueryRocDisplay,
    QueryScoresDisplay,
    SetSizeDisplay,
    SurvivalDisplay,
)
from .html import model_card, render_report, write_model_card, write_report
from .look import ColumnLook, TableLook, look

__all__ = [
    "AlphaPathDisplay",
    "Baseline",
    "CalibrationDisplay",
    "Choice",
    "CoefficientsDisplay",
    "ColumnLook",
    "DataFile",
    "Influence",
    "LearningCurveDisplay",
    "QueryRocDisplay",
    "QueryScoresDisplay",
    "SetSizeDisplay",
    "SurvivalDisplay",
    "TableLook",
    "TrainingReport",
    "look",
    "model_card",
    "render_report",
    "write_model_card",
    "write_report",
]
