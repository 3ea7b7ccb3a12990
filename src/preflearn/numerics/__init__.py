"""Factorisations in place and memory checks; independent of learning."""
