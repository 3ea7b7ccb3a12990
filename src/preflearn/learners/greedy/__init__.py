"""Greedy selection of features by exact held-out predictions."""
