"""Renders the report of `edgec bench` as Markdown, a page, JUnit XML and a trace."""
