"""Draws docs/avatar.gif, the moving picture of README.md, from the webcam's demo: the
face, its mesh, and the portrait that it moves.

    python -m tools.demo_picture
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from edgec_runtime.webcam.show import Show
from PIL import Image

from edgec.verbs.webcam_demo import demo_subject

PICTURE = Path(__file__).parents[1] / "docs" / "avatar.gif"
FRAMES = range(67, 236, 4)
"""The head turns, blinks, speaks and tilts."""
FRAME_MS = 160
"""Time of each frame: as long as in the clip, which has 25 frames a second."""
WIDTH = 660
"""Pixels of the picture."""
COLORS = 256
"""Colours of the palette, which all frames share: changing ones would flicker."""


def main() -> int:
    """Write the picture."""
    frames: list[Image.Image] = []
    with demo_subject("overlay", lambda question: True, print) as subject:
        show = Show(subject.source, subject.bundles, subject.effect)
        for shown in show:
            if shown.number in FRAMES:
                mesh = shown.result.draw(shown.before)
                row = np.concatenate([shown.before, mesh, shown.after], axis=1)
                picture = Image.fromarray(row)
                height = round(picture.height * WIDTH / picture.width)
                size = (WIDTH, height)
                frames.append(picture.resize(size, Image.Resampling.LANCZOS))
            if shown.number == FRAMES[-1]:
                break
        show.stop()
    several = np.concatenate([np.asarray(frame) for frame in frames[::6]])
    palette = Image.fromarray(several).quantize(COLORS)
    first, *others = (
        f.quantize(palette=palette, dither=Image.Dither.NONE) for f in frames
    )
    first.save(PICTURE, save_all=True, append_images=others, duration=FRAME_MS, loop=0)
    print(PICTURE, len(frames), "frames,", PICTURE.stat().st_size, "bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
