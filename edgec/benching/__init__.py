"""Turns raw times of a device into a report, verdicts and files (`edgec bench`)."""
