"""Writes a compiled file for other weights of a network, from one that exists."""
