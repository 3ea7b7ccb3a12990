"""Embedded data."""
