"""Protein-protein interactions from parsed sentences: corpora, candidate pairs, an extractor and its figures."""

from preflearn.ppi.corpus import Corpus, CorpusError, iter_sentences, read_conllu_corpus, read_corpus
from preflearn.ppi.evaluation import (
    CrossCorpus,
    Evaluation,
    LearningCurve,
    cross_corpus,
    evaluate,
    learning_curve,
    save_results,
)
from preflearn.ppi.extractor import InteractionExtractor
from preflearn.ppi.representation import Candidates, candidates
from preflearn.ppi.training import Settings

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
