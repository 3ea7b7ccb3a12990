"""Relations: labels of pairs of objects of two kinds, such as drugs and targets, or users and items."""

from .kronecker import KroneckerRLS
from .path import RelationPath
from .search import KroneckerRLSCV, TwoStepRLSCV
from .two_step import TwoStepRLS
from .validation import cross_val_predict

__all__ = [
    "KroneckerRLS",
    "KroneckerRLSCV",
    "RelationPath",
    "TwoStepRLS",
    "TwoStepRLSCV",
    "cross_val_predict",
]
