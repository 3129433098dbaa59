"""The optimisation passes of the graph.

Each pass is one file with a function `run(graph) -> bool` that reports whether it
changed the graph. `pipeline.py` orders them.
"""
