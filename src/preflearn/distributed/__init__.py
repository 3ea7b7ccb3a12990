"""Training on Dask collections: the same model as on one machine, the rows staying where they are.

Workers turn their partitions into statistics of fixed width, or into losses and gradients, which are summed in a tree;
the solvers are those of one machine. Partitions must hold whole queries (`align_queries` takes care of it); a query
that is in two of them is detected and refused. A worker that dies costs only time: Dask computes its partitions again.
"""

from .fitting import align_queries, fit

__all__ = ["align_queries", "fit"]
