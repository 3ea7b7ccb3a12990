"""Files and models: read rankings and preferences, write scores, keep models.

Reading goes file → blocks → data: ``formats`` turns each kind of file into blocks of rows, ``ranking`` puts blocks
together, all at once or in chunks of whole queries.
"""

from preflearn.io.data import PreferenceData, RankingData
from preflearn.io.encoders import HashedWords, OneHot
from preflearn.io.models import load_model, model_info, save_model
from preflearn.io.preferences import read_preferences
from preflearn.io.ranking import RankingScan, iter_ranking, read_ranking, scan_ranking
from preflearn.io.writing import read_scores, write_ranking, write_scores

__all__ = [
    "HashedWords",
    "OneHot",
    "PreferenceData",
    "RankingData",
    "RankingScan",
    "iter_ranking",
    "load_model",
    "model_info",
    "read_preferences",
    "read_ranking",
    "read_scores",
    "save_model",
    "scan_ranking",
    "write_ranking",
    "write_scores",
]
