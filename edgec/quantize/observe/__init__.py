"""What is seen of a model: calibration samples, ranges of values, agreement of outputs."""
