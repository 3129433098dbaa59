"""A bench as terminal text, Markdown, JUnit, a trace and a page."""
