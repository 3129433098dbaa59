"""Two ways to compute a network beside each other, layer by layer: which values are the
same, what differs, and why.
"""
