"""A live picture that a bundle changes: sources of frames, the show that runs them
through it, a page to watch it.
"""

LOOPBACK = "127.0.0.1"
PORT = 8080
"""Where the page is, unless something else is asked for."""
