"""Relations: labels of pairs of objects of two kinds, such as drugs and targets, or users and items."""

from .kronecker import KroneckerRLS, TwoStepRLS
from .search import KroneckerRLSCV, RelationPath, TwoStepRLSCV, cross_val_predict

__all__ = [
    "KroneckerRLS",
    "KroneckerRLSCV",
    "RelationPath",
    "TwoStepRLS",
    "TwoStepRLSCV",
    "cross_val_predict",
]
