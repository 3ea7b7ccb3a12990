"""Protein-protein interactions from parsed sentences: corpora, candidate pairs, an extractor and its evaluation."""

from .corpus import Corpus, CorpusError, iter_sentences, read_conllu_corpus, read_corpus
from .evaluation import (
    CrossCorpus,
    Evaluation,
    LearningCurve,
    cross_corpus,
    evaluate,
    learning_curve,
    save_results,
)
from .extractor import InteractionExtractor
from .representation import Candidates, candidates
from .training import Settings

__all__ = [
    "Candidates",
    "Corpus",
    "CorpusError",
    "CrossCorpus",
    "Evaluation",
    "InteractionExtractor",
    "LearningCurve",
    "Settings",
    "candidates",
    "cross_corpus",
    "evaluate",
    "iter_sentences",
    "learning_curve",
    "read_conllu_corpus",
    "read_corpus",
    "save_results",
]
