"""Factorisations in place and memory checks; knows nothing of learning."""
