"""A detector for other programs: they send pictures over ZeroMQ or HTTP, and get boxes."""

PLACES = 32
"""Pictures that wait, by default: those of 20 cameras, and some more."""
