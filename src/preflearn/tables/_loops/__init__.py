"""Compiled loops that read text."""
