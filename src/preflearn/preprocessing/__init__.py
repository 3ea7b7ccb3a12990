"""Tables and queries to features: a table as it comes into numbers, and features relative to their query."""

from .queries import suggest_query_column
from .query_relative import QueryRelative
from .summary import ColumnSummary, TableSummary, TableWarning
from .table import TableEncoder

__all__ = [
    "ColumnSummary",
    "QueryRelative",
    "TableEncoder",
    "TableSummary",
    "TableWarning",
    "suggest_query_column",
]
