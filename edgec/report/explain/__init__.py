"""explain's report as terminal text and a page."""
