"""Statements of order, and what builds them from scores, targets, columns and clicks."""
