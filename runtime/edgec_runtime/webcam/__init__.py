"""A live picture that a bundle changes: sources of frames, the show that runs them through it, a page to watch it."""
