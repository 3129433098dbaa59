"""diff's result as terminal text and a page."""
