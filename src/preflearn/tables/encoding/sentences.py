"""Texts to features by a sentence model: a vector for each text, near for texts that mean the same.

The model is one of the package ``sentence-transformers``, an optional part of preflearn: `preflearn.io` and the other
encoders never need it. It is loaded once for each name and device, however many transformers use it.
"""

from __future__ import annotations

from functools import lru_cache
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ...errors import missing_extra
from ..cells import is_missing_value

_DEFAULT_MODEL = "sentence-transformers/all-MiniLM-L6-v2"


class SentenceEmbedder(TransformerMixin, BaseEstimator):
    """Turn texts into the vectors of a sentence model.

    Parameters
    ----------
    model_name : str, default="sentence-transformers/all-MiniLM-L6-v2"
        Name of a model of ``sentence-transformers``, which is downloaded when it is first used, or a folder that holds
        one.
    revision : str or None, default=None
        Branch, tag or commit of a downloaded model; a commit always gives the same vectors.
    device : str or None, default=None
        Where the model runs, such as ``"cpu"`` or ``"cuda"``; None leaves the choice to ``sentence-transformers``.
    batch_size : int, default=32
        Texts that the model reads at once.
    normalise : bool, default=True
        Scale each vector to length 1.
    verbose : int, default=0
        Show a progress bar.

    Attributes
    ----------
    embedding_dim_ : int
        Length of the vectors.

    Notes
    -----
    Each distinct text is read once: those of ``fit`` are remembered, so that ``transform`` of the same texts costs
    nothing. What is remembered is neither pickled nor saved; nor is the sentence model, of which a model file
    holds the name alone. A missing text (None or NaN) counts as an empty one. The model cuts texts that are longer than
    it can read, often after about 256 words. Code that comes with a model is not run.

    Needs ``sentence-transformers``, the extra "embeddings".

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from preflearn import BradleyTerry
    >>> from preflearn.preprocessing import SentenceEmbedder
    >>> model = make_pipeline(SentenceEmbedder(), BradleyTerry())
    >>> model.fit(["Paris.", "I do not know.", "It is Paris."], [[0, 1], [2, 1]])  # doctest: +SKIP
    """

    def __init__(
        self, model_name=_DEFAULT_MODEL, *, revision=None, device=None, batch_size=32, normalise=True,
        verbose=0,
    ) -> None:  # fmt: skip
        self.model_name, self.revision, self.device = model_name, revision, device
        self.batch_size, self.normalise, self.verbose = batch_size, normalise, verbose

    def fit(self, X, y=None):
        """Read the texts and remember their vectors.

        Parameters
        ----------
        X : sequence of m texts, or a table with one column
        y : ignored

        Returns
        -------
        self

        Raises
        ------
        ImportError
            If ``sentence-transformers`` is not installed.
        OSError
            If the model cannot be loaded.
        """
        self._fit(X)
        return self

    def fit_transform(self, X, y=None):
        """As ``fit``, and the vectors.

        Parameters
        ----------
        X, y : as in fit

        Returns
        -------
        ndarray of shape (m, embedding_dim_), float32
        """
        return self._look_up(self._fit(X))

    def transform(self, X):
        """The vectors of texts.

        Parameters
        ----------
        X : sequence of m texts, or a table with one column

        Returns
        -------
        ndarray of shape (m, embedding_dim_), float32
        """
        check_is_fitted(self)
        return self._look_up(_read_texts(X))

    def get_feature_names_out(self, input_features=None):
        """Names of the features.

        Parameters
        ----------
        input_features : ignored

        Returns
        -------
        ndarray of str
        """
        check_is_fitted(self)
        return np.array([f"embedding{k}" for k in range(self.embedding_dim_)], dtype=object)

    def _fit(self, X: Any) -> list[str]:
        if (
            isinstance(self.batch_size, bool)
            or not isinstance(self.batch_size, Integral)
            or self.batch_size < 1
        ):
            raise ValueError(f"batch_size must be an int of at least 1: found {self.batch_size!r}.")
        texts = _read_texts(X)
        if not texts:
            raise ValueError("Found 0 sample(s) while a minimum of 1 is required: there are no texts.")
        distinct = list(dict.fromkeys(texts))
        vectors = self._embed(distinct)
        self.embedding_dim_ = int(vectors.shape[1])
        self._known = dict(zip(distinct, vectors, strict=True))
        return texts

    def _look_up(self, texts: list[str]) -> np.ndarray:
        known = getattr(self, "_known", {})
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            vectors = self._embed(new)
            if vectors.shape[1] != self.embedding_dim_:
                raise ValueError(
                    f"The sentence model {self.model_name!r} gives {vectors.shape[1]} features, and gave "
                    f"{self.embedding_dim_} in fit: it is another model under the same name. Fit again."
                )
            known = {**known, **dict(zip(new, vectors, strict=True))}
        if not texts:
            return np.empty((0, self.embedding_dim_), dtype=np.float32)
        return np.stack([known[text] for text in texts])

    def _embed(self, texts: list[str]) -> np.ndarray:
        model = _load(self.model_name, self.revision, self.device)
        vectors = model.encode(
            texts,
            batch_size=int(self.batch_size),
            show_progress_bar=bool(self.verbose),
            convert_to_numpy=True,
            normalize_embeddings=bool(self.normalise),
        )
        return np.asarray(vectors, dtype=np.float32)

    def _fitted_arrays(self) -> dict[str, str]:
        """What a loaded transformer is checked for (`preflearn.tables.models.fitted`)."""
        if "embedding_dim_" not in vars(self):
            return {}
        if not isinstance(self.embedding_dim_, int) or self.embedding_dim_ < 1:
            raise ValueError(
                f"embedding_dim_ is {self.embedding_dim_!r}, expected a whole number of at least 1"
            )
        return {"model_name": "a str"}

    def __getstate__(self):
        state = dict(super().__getstate__())
        state.pop("_known", None)
        return state


@lru_cache(maxsize=4)
def _load(name: str, revision: str | None, device: str | None) -> Any:
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        more = f". Without it, TableEncoder(kinds={{...: 'text'}}) makes features of words. ({error})"
        raise missing_extra("SentenceEmbedder", "sentence-transformers", "embeddings", more) from None
    try:
        return SentenceTransformer(name, revision=revision, device=device, trust_remote_code=False)
    except (OSError, ValueError) as error:
        raise OSError(
            f"The sentence model {name!r} cannot be loaded: {error} Pass the folder of a model, or the name of one "
            "that can be downloaded from here."
        ) from error


def _read_texts(X: Any) -> list[str]:
    """One text per row; missing ones empty."""
    if isinstance(X, str):
        raise TypeError("SentenceEmbedder takes a sequence of texts: found a single text, pass [text].")
    if hasattr(X, "to_numpy"):
        X = X.to_numpy()
    values = np.asarray(X, dtype=object) if isinstance(X, np.ndarray) else _one_by_one(X)
    if values.ndim == 2 and values.shape[1] == 1:
        values = values[:, 0]
    if values.ndim != 1:
        raise ValueError(
            f"SentenceEmbedder takes one text per row: found shape {values.shape}. Choose a column, with a "
            "ColumnTransformer for example."
        )
    texts = ["" if is_missing_value(value) else value for value in values.tolist()]
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise TypeError(
                f"SentenceEmbedder takes texts: row {row} holds {text!r} ({type(text).__name__})."
            )
    return texts


def _one_by_one(X: Any) -> np.ndarray:
    rows = [row[0] if isinstance(row, (list, tuple)) and len(row) == 1 else row for row in X]
    values = np.empty(len(rows), dtype=object)
    values[:] = rows
    return values
