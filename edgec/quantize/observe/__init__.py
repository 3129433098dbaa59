"""Observes models: calibration samples, ranges of values, agreement of outputs."""
