"""Published experiments, one module each, written on the public interface alone.

Every module has a function ``run`` that returns an `ExperimentReport`: print it for Markdown, ``to_json`` for a file,
``plot`` for the figure where the publication has one. `registry` is the table of them, `Resume` keeps finished parts of
a long run.
"""

from .report import ExperimentReport
from .resume import Resume

__all__ = ["ExperimentReport", "Resume"]
