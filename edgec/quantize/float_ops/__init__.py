"""Which operations stay in float32, and which channels are taken out."""
