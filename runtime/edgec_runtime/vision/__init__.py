"""Pictures: photos and camera frames into inputs, results of tasks drawn and smoothed."""
