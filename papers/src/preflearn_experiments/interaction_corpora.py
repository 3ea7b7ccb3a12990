"""The five corpora of protein-protein interactions that two experiments read."""

from __future__ import annotations

from pathlib import Path

from preflearn_papers.ppi import Candidates, candidates, read_corpus

from .data import find_file, find_folder

# In the order of the article: name → file
CORPORA = {
    "AIMed": "AImed-learning-format.xml.xz",
    "BioInfer": "BioInfer-learning-format.xml.xz",
    "HPRD50": "HPRD50-learning-format.xml.xz",
    "IEPA": "IEPA-learning-format.xml.xz",
    "LLL": "LLL-learning-format.xml.xz",
}
# The published figures have at most 4000 basis vectors, which take much longer on the two large corpora.
N_BASIS = 1000


def read_candidates(data: str | Path | None, name: str, experiment: str) -> Candidates:
    """Candidate pairs of a corpus, with their graphs."""
    folder = find_folder(data, "ppi_corpora", experiment)
    return candidates(read_corpus(find_file(folder, CORPORA[name], experiment)))
