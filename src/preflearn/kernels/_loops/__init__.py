"""Compiled loops of kernels: sparse products, expansions in basis vectors."""
