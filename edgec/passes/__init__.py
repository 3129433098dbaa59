"""The optimisation passes: one file each with a `run(graph) -> bool`, ordered in
pipeline.py.
"""
