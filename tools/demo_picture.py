"""Draws docs/avatar.jpg, the first picture of README.md, from the webcam's demo: the face,
its mesh, and the portrait that it moves.

    python -m tools.demo_picture
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from edgec_runtime.webcam.show import Show
from PIL import Image

from edgec.verbs.webcam_demo import demo_subject

PICTURE = Path(__file__).parents[1] / "docs" / "avatar.jpg"
FRAMES = (86, 131)
"""The head turns left; it speaks."""
WIDTH = 1200
"""Pixels of the picture."""


def main() -> int:
    """Write the picture."""
    with demo_subject("overlay", lambda question: True, print) as subject:
        show = Show(subject.source, subject.bundles, subject.effect)
        rows = []
        for shown in show:
            if shown.number in FRAMES:
                mesh = shown.result.draw(shown.before)
                rows.append(np.concatenate([shown.before, mesh, shown.after], axis=1))
            if shown.number == max(FRAMES):
                break
        show.stop()
    picture = Image.fromarray(np.concatenate(rows))
    height = round(picture.height * WIDTH / picture.width)
    picture.resize((WIDTH, height), Image.Resampling.LANCZOS).save(PICTURE, quality=88)
    print(PICTURE)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
