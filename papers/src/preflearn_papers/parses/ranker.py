"""A ranker of parses: sentences with scored parses in, an order of new parses out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from preflearn import RankRLSCV
from preflearn.model_selection import QueryKFold

from .features import LinkFeatures
from .linkages import Linkage, Sentence, as_ranking

ALPHAS = tuple(2.0**k for k in range(-10, 1, 2))


class RankedParse(NamedTuple):
    """A parse, its predicted score, and its original position, from 0."""

    linkage: Linkage
    score: float
    place: int


class ParseRanker(BaseEstimator):
    """RankRLS over the parses of each sentence, with sparse features of their links.

    Parameters
    ----------
    kind : {"context", "links"}
        Of the features; see `LinkFeatures`.
    tags : {"given", "spelling"}
        Parts of speech of the file, or classes of words by their spelling, which new text has as well.
    alphas : sequence of float
        Regularisation to choose from.
    n_folds : int, default=5
        Folds of whole sentences for the choice.
    random_state : int, default=0
        Of the folds.
    verbose : int, default=0

    Attributes
    ----------
    features_ : LinkFeatures
    coef_ : ndarray of shape (n_features,)
        Weight of every feature.
    alpha_ : float
    held_out_error_ : float
        Disagreement error inside held-out sentences at the chosen alpha.

    Notes
    -----
    All parses are used, in primal form by conjugate gradients: O(non-zeros) per iteration, whatever the number of
    parses. The order does not need a relative residual below 10⁻³.

    Examples
    --------
    >>> from preflearn_papers.parses import Link, Linkage, Sentence, Token
    >>> tokens = (Token("cells", "NNS"), Token("divide", "VBP"), Token("fast", "RB"))
    >>> good, bad = (Link(0, 1, "Sp"), Link(1, 2, "MVa")), (Link(0, 1, "Sp"), Link(0, 2, "MVa"))
    >>> parses = tuple(Linkage(tokens, links, score=f) for links, f in [(bad, 0.5), (good, 1.0)])
    >>> sentences = [Sentence(f"s{k}", "", tokens, parses) for k in range(4)]
    >>> ranker = ParseRanker(n_folds=2).fit(sentences)
    >>> [parse.place for parse in ranker.rank(sentences[0])]
    [1, 0]
    """

    def __init__(
        self, kind: str = "context", *, tags: str = "given", alphas: Sequence[float] = ALPHAS,
        n_folds: int = 5, random_state: int = 0, verbose: int = 0,
    ) -> None:  # fmt: skip
        self.kind, self.tags, self.alphas, self.n_folds = kind, tags, alphas, n_folds
        self.random_state, self.verbose = random_state, verbose

    def fit(self, sentences: Iterable[Sentence]) -> Self:
        """Learn from sentences whose parses have scores.

        Parameters
        ----------
        sentences : iterable of Sentence
        """
        linkages, y, qid = as_ranking(sentences)
        unknown = int(np.count_nonzero(np.isnan(y)))
        if unknown or not linkages:
            found = f"{unknown} of {len(linkages)} have none" if unknown else "found no parse"
            raise ValueError(f"Expected sentences whose parses have scores: {found}.")
        features = LinkFeatures(self.kind, tags=self.tags)
        X = features.fit_transform(linkages)
        search = RankRLSCV(
            self.alphas,
            weighting="query",
            scoring="concordance",
            cv=QueryKFold(self.n_folds, shuffle=True, random_state=self.random_state),
            solver="cg",
            tol=1e-3,
            verbose=self.verbose,
        )
        search.fit(X, y, qid=qid)
        self.features_ = features
        self.coef_ = search.coef_
        self.alpha_ = search.alpha_
        self.held_out_error_ = 1 - search.best_score_
        return self

    def predict(self, linkages: Iterable[Linkage]) -> np.ndarray:
        """Scores of parses; only those of one sentence can be compared."""
        check_is_fitted(self, "coef_")
        return self.features_.transform(linkages) @ self.coef_

    def rank(self, sentence: Sentence) -> list[RankedParse]:
        """The parses of a sentence, best first.

        Parameters
        ----------
        sentence : Sentence
            As returned by `read_linkages` or `parse_text`.
        """
        if self.tags == "given" and not any(token.tag for token in sentence.tokens):
            raise ValueError(
                "The ranker has learned from parts of speech and the sentence has none: train with tags='spelling' for "
                "untagged text."
            )
        scores = self.predict(sentence.linkages).tolist()
        ranked = [
            RankedParse(linkage, score, place)
            for place, (linkage, score) in enumerate(zip(sentence.linkages, scores, strict=True))
        ]
        return sorted(ranked, key=lambda parse: -parse.score)

    def _fitted_arrays(self) -> dict[str, str]:
        """The shapes that a loaded ranker is checked for (`preflearn.tables.models.fitted`)."""
        if "coef_" not in vars(self):
            return {}
        return {"features_": "a LinkFeatures", "coef_": str(self.features_.n_features_out_)}
