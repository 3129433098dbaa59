"""Decides which operations stay in float32, and which channels are pruned."""
