"""What reproduces publications with preflearn: protein-protein interactions (`ppi`) and parses of sentences (`parses`).

The published experiments are the package `preflearn_experiments` beside this one.
"""

__version__ = "0.3.0"
