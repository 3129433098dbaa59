"""Random graphs and damaged files: makers, ways to run them, and what shrinks a
failure.
"""
