"""Files and models: read rankings, tables and preferences, write scores, keep models.

Reading goes file → blocks → data: ``formats`` turns each kind of file into blocks of rows, ``ranking`` puts blocks
together, all at once or in chunks of whole queries.
"""

from .tables.data import PreferenceData, RankingData, TableData
from .tables.models.files import load_model, model_info, save_model
from .tables.models.onnx import to_onnx
from .tables.models.search_engines import to_elasticsearch, to_solr
from .tables.preferences import TextPreferences, read_preferences, read_text_preferences
from .tables.ranking import RankingScan, iter_ranking, read_ranking, scan_ranking
from .tables.table import read_table
from .tables.writing import (
    Judged,
    Qrels,
    Run,
    judge_run,
    read_qrels,
    read_run,
    read_scores,
    write_qrels,
    write_ranking,
    write_run,
    write_scores,
)

__all__ = [
    "Judged",
    "PreferenceData",
    "Qrels",
    "RankingData",
    "RankingScan",
    "Run",
    "TableData",
    "TextPreferences",
    "iter_ranking",
    "judge_run",
    "load_model",
    "model_info",
    "read_preferences",
    "read_qrels",
    "read_ranking",
    "read_run",
    "read_scores",
    "read_table",
    "read_text_preferences",
    "save_model",
    "scan_ranking",
    "to_elasticsearch",
    "to_onnx",
    "to_solr",
    "write_qrels",
    "write_ranking",
    "write_run",
    "write_scores",
]
