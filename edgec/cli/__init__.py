"""Defines the verbs for a terminal, a file for each group; the work is elsewhere."""
