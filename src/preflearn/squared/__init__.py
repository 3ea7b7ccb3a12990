"""The one quadratic problem behind every squared-loss learner: build it, factorise it, solve it for every alpha.

    items, comparisons ──► routes.py ──► representations.py ──► problem.py ──► solutions at every alpha
                       (seven rules)   (how f is written)        └────────► holdout/: predictions of what is left out

`moments.py` and `statistics.py` are sums over rows that add up (partial fits, streams, clusters); `devices/` the same
problem on arrays of other libraries.
"""
