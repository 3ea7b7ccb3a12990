"""Labelled graphs as features and kernels: all paths, Weisfeiler-Lehman."""
