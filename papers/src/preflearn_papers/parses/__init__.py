"""Candidate parses of sentences: read, turned into graphs and sparse features, made from text, and ranked."""

from .features import LinkFeatures, spelling_tag
from .link_grammar import is_installed, parse_text
from .linkages import (
    Link,
    Linkage,
    ParseRanking,
    Sentence,
    Token,
    agreement,
    as_ranking,
    iter_linkages,
    read_linkages,
)
from .ranker import ParseRanker, RankedParse

__all__ = [
    "Link",
    "LinkFeatures",
    "Linkage",
    "ParseRanker",
    "ParseRanking",
    "RankedParse",
    "Sentence",
    "Token",
    "agreement",
    "as_ranking",
    "is_installed",
    "iter_linkages",
    "parse_text",
    "read_linkages",
    "spelling_tag",
]
