"""The webcam: sources of frames, the show that runs bundles on them, and its page."""

LOOPBACK = "127.0.0.1"
PORT = 8080
"""Default port of the page."""
