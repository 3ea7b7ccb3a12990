"""Tables, texts and queries to features: numbers from tables, vectors of sentences, features relative to a query."""

from .kinds import suggest_query_column
from .query_relative import QueryRelative
from .sentences import SentenceEmbedder
from .summary import ColumnSummary, TableSummary, TableWarning
from .table import TableEncoder

__all__ = [
    "ColumnSummary",
    "QueryRelative",
    "SentenceEmbedder",
    "TableEncoder",
    "TableSummary",
    "TableWarning",
    "suggest_query_column",
]
