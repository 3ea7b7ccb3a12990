"""Training on Dask collections: the same model as on one machine, the rows staying where they are.

Workers turn their partitions into statistics of fixed width, or into losses and gradients, which are added up in a
tree; the solvers are those of one machine. Partitions must hold whole queries (`align_queries` sees to it); a query
that is in two of them is noticed and refused. A worker that dies costs time only: Dask computes its partitions again.
"""

from .alignment import align_queries
from .fitting import fit

__all__ = ["align_queries", "fit"]
