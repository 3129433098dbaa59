"""A live picture changed by a bundle: sources of frames, the show, and its page."""

LOOPBACK = "127.0.0.1"
PORT = 8080
"""Where the page is, unless something else is asked for."""
