"""Reads the facts about a bundle that `edgec inspect` shows."""
