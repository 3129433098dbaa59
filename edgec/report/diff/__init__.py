"""Renders the result of `edgec diff` as terminal text and as a page."""
