"""Runs several models as a pipeline."""
