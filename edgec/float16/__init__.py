"""Float16 in place of float32, on cores that compute twice as many of them at once."""
