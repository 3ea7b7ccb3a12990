"""Learners that weight several kernels."""
