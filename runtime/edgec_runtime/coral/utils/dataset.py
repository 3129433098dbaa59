"""Files of labels."""

from __future__ import annotations

import re
from typing import Dict


def read_label_file(file_path: str) -> Dict[int, str]:
    """Return the label of each class number of a text file.

    A line is "number label" or "number:label"; a line without a number counts as the
    number of the row, from 0.
    """
    labels: Dict[int, str] = {}
    with open(file_path, encoding="utf-8") as file:
        for row, line in enumerate(file):
            text = line.strip()
            # Only the first separator counts: labels have spaces, too.
            parts = re.split(r"[:\s]+", text, maxsplit=1)
            if len(parts) == 2 and parts[0].isdigit():
                labels[int(parts[0])] = parts[1].strip()
            else:
                labels[row] = text
    return labels
