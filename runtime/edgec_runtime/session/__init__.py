"""A loaded bundle that answers calls: single inferences, streams of frames, state between calls."""
