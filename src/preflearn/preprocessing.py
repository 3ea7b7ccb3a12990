"""Tables, texts and queries to features: numbers from tables, vectors of sentences, features relative to a query."""

from .tables.encoding.kinds import ColumnSummary, TableSummary, TableWarning, suggest_query_column
from .tables.encoding.query_relative import QueryRelative
from .tables.encoding.sentences import SentenceEmbedder
from .tables.encoding.table import TableEncoder

__all__ = [
    "ColumnSummary",
    "QueryRelative",
    "SentenceEmbedder",
    "TableEncoder",
    "TableSummary",
    "TableWarning",
    "suggest_query_column",
]
