"""Training on more rows than fit in memory: one pass over chunks, statistics of fixed width, checkpoints.

    chunks ──► statistics of each chunk, per fold ──► summed ──► a model, or every alpha scored and the best model
    (sources.py)    (core/statistics.py)    (stream.py, checkpoint.py)    (one_pass_cv.py, models.py)

The same statistics are summed over the partitions of a cluster by `preflearn.distributed`.
"""
