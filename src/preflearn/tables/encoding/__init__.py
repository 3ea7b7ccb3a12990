"""Columns of tables as numbers: kinds, encoders, features relative to their query."""
