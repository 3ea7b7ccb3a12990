"""Compiled loops: plain functions on arrays, compiled by Numba on first use and cached on disk.

Only the modules of this package import Numba, and the rest of the library imports them inside functions, so that
``import preflearn`` does not pay for it.
"""
