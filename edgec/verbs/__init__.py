"""What the other verbs do: explain, run, bench, diff, tune, webcam, demo."""
