"""The engine: what the learners run on. Users never import it; its names may change without notice.

solvers ──► which representation of f, which route; hinge, logistic and order programs
losses  ──► hinge, squared hinge and logistic losses over pairs
core    ──► the one quadratic problem: representations, solution paths, hold-outs, statistics that add up
arrays  ──► the same problem on PyTorch and other array API arrays
streaming ──► one pass over chunks of rows, with checkpoints
numerics, loops ──► dense linear algebra in place, compiled loops, threads
"""
