"""Compiled loops of AutoRanker: trees and quantiles."""
