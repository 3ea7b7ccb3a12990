"""Held-out predictions by algebra, one module for each form of the quadratic problem."""
