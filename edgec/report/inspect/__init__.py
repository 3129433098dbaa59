"""Renders the facts about a bundle, as text and as a page."""
