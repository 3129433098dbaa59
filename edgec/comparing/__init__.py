"""Compares two ways to compute a network layer by layer, and explains differences."""
