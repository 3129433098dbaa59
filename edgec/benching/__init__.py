"""From raw times of a device to a report, verdicts and files (`edgec bench`)."""
