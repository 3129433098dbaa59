"""Renders results for people: HTML pages, terminal text and tables, nothing else."""
