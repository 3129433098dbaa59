"""A detector for other programs: they send pictures over ZeroMQ or HTTP, and get boxes."""
