"""Exact cross-validation, honest performance estimates, and splitters that know of queries."""

from .splitters import LeavePairOut, LeaveQueryOut, QueryKFold

__all__ = ["LeavePairOut", "LeaveQueryOut", "QueryKFold"]
