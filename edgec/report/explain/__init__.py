"""Renders the report of `edgec explain` as terminal text and as a page."""
