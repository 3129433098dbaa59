"""The effects avatar, mask, makeup and puppet, on faces that no network has found."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from edgec_runtime import InputError
from edgec_runtime.cascade.result import CascadeObject, CascadeResult
from edgec_runtime.face.landmarks import FOREHEAD, LEFT_BROW, LOWER_LIP, UPPER_LIP
from edgec_runtime.face.motion import NEUTRAL_FRAMES
from edgec_runtime.face.point_file import LEAST_NAMED, NAMES, portrait_points
from edgec_runtime.face.puppet import puppet
from edgec_runtime.vision.preprocess import Fit
from edgec_runtime.vision.tasks.base import Result, View
from edgec_runtime.vision.tasks.segmentation import Segments
from edgec_runtime.webcam.effects import Effect, Painter, effect, effects_for
from edgec_runtime.webcam.effects.mask import built_in_masks
from PIL import Image

from edgec.ir import Array
from edgec.verbs.face_poses import FacePose
from tests.face.faces import SIZE, UNIT, frame, points, result


def _found(picture: Array) -> Result:
    """The face of a drawn portrait, as a bundle would find it."""
    return result(puppet((picture.shape[1], picture.shape[0])).points)


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("portrait") / "head.png"
    Image.fromarray(puppet(SIZE).picture).save(path)
    return path


def _rested(made: Effect) -> float:
    """Show the effect a face at rest; returns the time after it."""
    for i in range(NEUTRAL_FRAMES + 1):
        made(frame(), result(points()), i / 30)
    return (NEUTRAL_FRAMES + 1) / 30


def _held(made: Effect, pose: FacePose, at: float) -> Array:
    """Show the effect a pose, long enough for a new neutral one; returns the last
    picture.
    """
    out = frame()
    for i in range(NEUTRAL_FRAMES + 2):
        out = made(frame(i), result(points(pose)), at + i / 10)
    return out


def test_face_effects_are_for_landmarks_and_cascades() -> None:
    for task in ("landmarks", "cascade"):
        names = {"overlay", "avatar", "mask", "makeup", "puppet"}
        assert set(effects_for(task)) == names


def test_an_avatar_moves_as_its_driver(drawn: Path) -> None:
    made = effect(f"avatar={drawn}", Painter(), _found)
    at = _rested(made)
    still = made(frame(), result(points()), at)
    assert np.abs(still.astype(int) - np.asarray(Image.open(drawn))).max() <= 2
    moved = _held(made, FacePose(turn=(0.0, 0.0, 0.15), jaw=0.15), at)
    assert np.abs(moved.astype(int) - still).max() > 60


def test_an_avatar_is_found_in_a_cascade(drawn: Path) -> None:
    made = effect(f"avatar={drawn}", Painter(), _found)
    assert made(frame(), CascadeResult(), 0.0).shape == frame().shape
    one = CascadeObject(1, {"mesh": result(points())})
    for i in range(NEUTRAL_FRAMES):
        made(frame(), CascadeResult((one,)), i / 30)
    tilted = CascadeObject(1, {"mesh": result(points(FacePose(turn=(0, 0, 0.2))))})
    still = made(frame(), CascadeResult((one,)), 1.0)
    for i in range(8):
        moved = made(frame(), CascadeResult((tilted,)), 1.1 + i / 5)
    assert np.abs(moved.astype(int) - still).max() > 60


def test_an_avatar_eases_to_rest_without_a_face(drawn: Path) -> None:
    made = effect(f"avatar={drawn}", Painter(), _found)
    at = _rested(made)
    still = made(frame(), result(points()), at).astype(int)
    moved = _held(made, FacePose(turn=(0.0, 0.0, 0.2)), at).astype(int)
    lost = [made(frame(), result(None), at + 1.3 + s).astype(int) for s in (0.1, 1, 10)]
    assert np.abs(lost[0] - moved).max() <= 1
    assert np.abs(lost[1] - still).max() > 5
    assert np.abs(lost[2] - still).max() <= 2


def test_another_neutral_pose_is_taken_at_wish(drawn: Path) -> None:
    made = effect(f"avatar={drawn}", Painter(), _found)
    at = _rested(made)
    still = made(frame(), result(points()), at).astype(int)
    tilt = FacePose(turn=(0.0, 0.0, 0.2))
    assert np.abs(_held(made, tilt, at) - still).max() > 60
    made.renew()
    assert np.abs(_held(made, tilt, at + 2) - still).max() <= 2


def test_a_puppet_shows_nothing_of_the_camera() -> None:
    made = effect("puppet", Painter())
    pose = result(points(FacePose(jaw=0.1)))
    other = effect("puppet", Painter())
    for i in range(NEUTRAL_FRAMES + 5):
        one = made(frame(1), pose, i / 30)
        two = other(frame(2), pose, i / 30)
    assert (one == two).all()


def test_points_of_a_drawn_portrait_are_placed_by_hand(
    drawn: Path, tmp_path: Path
) -> None:
    portrait = tmp_path / "cat.png"
    portrait.write_bytes(drawn.read_bytes())
    face = puppet(SIZE).points
    chosen = [n for n in NAMES if n.startswith(("left", "right", "mouth", "chin"))]
    places = {name: face[NAMES[name], :2].round(1).tolist() for name in chosen}
    assert LEAST_NAMED <= len(places) < 30
    portrait.with_suffix(".json").write_text(json.dumps({"points": places}))
    # Without a bundle that could find them.
    made = effect(f"avatar={portrait}", Painter())
    _rested(made)
    found = portrait_points(portrait.with_suffix(".json"))
    assert found is not None
    assert np.hypot(*(found - face)[:, :2].T).max() < 4
    assert np.hypot(*(found - face)[[NAMES[n] for n in chosen], :2].T).max() < 0.2


def test_all_points_may_be_placed(tmp_path: Path) -> None:
    face = puppet(SIZE).points[:, :2]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"points": face.tolist()}))
    found = portrait_points(path)
    assert found is not None
    assert np.abs(found[:, :2] - face).max() < 1e-6
    assert np.isfinite(found).all()


PLACED: Mapping[str, tuple[str, str]] = {
    "no JSON": ("{", "is not JSON"),
    "deep": ("[" * 100_000, "is not JSON"),
    "another form": ("[]", 'has no "points"'),
    "an unknown name": ('{"points": {"left eye outr": [1, 2]}}', "did you mean"),
    "too few": ('{"points": {"chin": [1, 2]}}', "at least 15 are needed"),
    "no place": ('{"points": {"chin": [1]}}', "not a place in a picture"),
    "no number": ('{"points": {"chin": [1, true]}}', "not a place in a picture"),
    "infinity": ('{"points": {"chin": [1, 1e999]}}', "not a place in a picture"),
    "few in a list": ('{"points": [[1, 2]]}', "has 1 points, not 468"),
    "neither": ('{"points": 7}', "has no points, not 468"),
}


@pytest.mark.parametrize("name", sorted(PLACED))
def test_wrong_placed_points_are_named(name: str, drawn: Path, tmp_path: Path) -> None:
    text, said = PLACED[name]
    portrait = tmp_path / "head.png"
    portrait.write_bytes(drawn.read_bytes())
    portrait.with_suffix(".json").write_text(text)
    with pytest.raises(InputError, match=said) as e:
        effect(f"avatar={portrait}", Painter(), _found)
    assert e.value.hint


@pytest.mark.parametrize("way", ["one place", "a line", "mirrored", "upside down"])
def test_points_that_make_no_face_are_refused(
    way: str, drawn: Path, tmp_path: Path
) -> None:
    face = puppet(SIZE).points[:, :2]
    wrong = {
        "one place": face * 0 + 30,
        "a line": face[:, :1] * [1, 1],
        "mirrored": face * [-1, 1] + [SIZE[0], 0],
        "upside down": face * [1, -1] + [0, SIZE[1]],
    }[way]
    path = tmp_path / "head.png"
    path.write_bytes(drawn.read_bytes())
    text = json.dumps({"points": wrong.tolist()})
    path.with_suffix(".json").write_text(text)
    with pytest.raises(InputError, match="make no face") as e:
        effect(f"avatar={path}", Painter())
    assert e.value.hint


def test_a_face_that_the_border_cuts_off_is_drawn(tmp_path: Path) -> None:
    whole = puppet(SIZE)
    cut = 60
    path = tmp_path / "cut.png"
    Image.fromarray(whole.picture[:, cut:]).save(path)
    points_left = (whole.points[:, :2] - [cut, 0]).tolist()
    path.with_suffix(".json").write_text(json.dumps({"points": points_left}))
    made = effect(f"avatar={path}", Painter())
    at = _rested(made)
    still = made(frame(), result(points()), at)
    moved = _held(made, FacePose(turn=(0.0, 0.0, 0.2)), at)
    assert np.abs(moved.astype(int) - still).max() > 60
    # Nothing of what the memory held before: all of it is drawn.
    again = _held(made, FacePose(turn=(0.0, 0.0, 0.2)), at + 5)
    assert np.abs(moved.astype(int) - again).max() <= 2


@pytest.mark.parametrize("name", ["avatar", "mask", "makeup"])
def test_what_an_effect_wants_is_said(name: str) -> None:
    with pytest.raises(InputError, match=f"{name} needs") as e:
        effect(name, Painter())
    assert name in str(e.value.hint)
    with pytest.raises(InputError, match="there is no effect"):
        effect("puppet=7", Painter())


def test_a_portrait_without_a_face_is_refused(drawn: Path) -> None:
    with pytest.raises(InputError, match="no face was found in the portrait") as e:
        effect(f"avatar={drawn}", Painter(), lambda _: result(None))
    assert "head.json" in str(e.value.hint)
    with pytest.raises(InputError, match=r"there is no photo nowhere\.jpg"):
        effect("avatar=nowhere.jpg", Painter(), _found)


POOR: Mapping[str, tuple[FacePose, float, float, str]] = {
    "in profile": (FacePose(turn=(0.0, 0.9, 0.0)), 1, 0, "looks 52 degrees aside"),
    "looks up": (FacePose(turn=(-0.8, 0.0, 0.0)), 1, 0, "looks 46 degrees aside"),
    "tiny": (FacePose(), 0.25, 0, "its eyes are 9 pixels apart, 24 are needed"),
    "off the middle": (FacePose(), 1, -62, "off the middle by 35% of the picture"),
}


@pytest.mark.parametrize("name", POOR)
def test_portraits_of_which_no_avatar_is_made_are_named(name: str, drawn: Path) -> None:
    pose, scale, aside, said = POOR[name]
    face = points(pose)
    face[:, :2] = (face[:, :2] - np.array(SIZE) / 2) * scale + np.array(SIZE) / 2
    face[:, 0] += aside
    with pytest.raises(InputError, match=said) as e:
        effect(f"avatar={drawn}", Painter(), lambda _: result(face))
    assert e.value.hint
    assert str(drawn) in str(e.value)


@pytest.mark.parametrize("name", ["glasses", "whiskers", "paint"])
def test_masks_follow_the_face(name: str) -> None:
    made = effect(f"mask={name}", Painter())
    gray = np.full_like(frame(), 128)
    aside = FacePose(shift=(0.5, 0.0))
    here = made(gray, result(points()), 0.0) != gray
    made.renew()
    effect_there = effect(f"mask={name}", Painter())
    there = effect_there(gray, result(points(aside)), 0.0) != gray
    assert here.any()
    assert (gray == 128).all()
    moved = np.argwhere(there).mean(axis=0) - np.argwhere(here).mean(axis=0)
    assert moved[1] == pytest.approx(UNIT / 2, abs=2)
    assert abs(moved[0]) < 2
    assert (made(gray, result(None), 1.0) == gray).all()


def test_ears_are_above_the_head() -> None:
    gray = np.full_like(frame(), 128)
    face = points()
    out = effect("mask=whiskers", Painter())(gray, result(face), 0.0)
    rows = np.flatnonzero((out != gray).any(axis=(1, 2)))
    brows = face[list(LEFT_BROW), 1].min()
    ears = rows[rows < brows]
    # They begin above the hairline, and end where no hair is.
    assert ears.max() < face[FOREHEAD, 1]
    assert ears.min() < face[FOREHEAD, 1] - 0.8 * UNIT


def test_masks_come_with_edgec() -> None:
    assert built_in_masks() == ["glasses", "paint", "whiskers"]


def test_a_mask_is_lit_as_the_face_is() -> None:
    made = effect("mask=paint", Painter())
    for i in range(NEUTRAL_FRAMES):
        bright = made(np.full_like(frame(), 180), result(points()), i / 30)
    dark = made(np.full_like(frame(), 90), result(points()), 1.0)
    changed = (bright != 180).any(axis=2) & (dark != 90).any(axis=2)
    ratio = dark[changed].astype(float).mean() / bright[changed].mean()
    assert ratio == pytest.approx(0.5, abs=0.05)


PINNED: Mapping[str, tuple[str, str]] = {
    "too few": ('{"points": [[1, 2, 3]]}', "3 points or more"),
    "no list": ('{"points": {"chin": [1, 2]}}', "3 points or more"),
    "no such point": (
        '{"points": [[1, 2, 3], [1, 2, 468], [4, 4, 5]]}',
        "not a pinned",
    ),
    "twice": ('{"points": [[1, 2, 3], [7, 2, 3], [4, 4, 5]]}', "pinned twice"),
}


@pytest.mark.parametrize("name", sorted(PINNED))
def test_wrong_pinned_points_are_named(name: str, drawn: Path, tmp_path: Path) -> None:
    text, said = PINNED[name]
    picture = tmp_path / "hat.png"
    picture.write_bytes(drawn.read_bytes())
    with pytest.raises(InputError, match="has its points beside it"):
        effect(f"mask={picture}", Painter())
    picture.with_suffix(".json").write_text(text)
    with pytest.raises(InputError, match=said):
        effect(f"mask={picture}", Painter())


def test_makeup_colours_lips_and_keeps_their_shades() -> None:
    rng = np.random.default_rng(0)
    gray = rng.integers(100, 140, (SIZE[1], SIZE[0], 1), np.uint8).repeat(3, axis=2)
    made = effect("makeup=lips:#a02040", Painter())
    out = made(gray, result(points()), 0.0)
    lips = points()[[*UPPER_LIP, *LOWER_LIP], :2]
    y, x = np.argwhere((out != gray).any(axis=2)).T
    assert x.min() >= lips[:, 0].min() - 12
    assert x.max() <= lips[:, 0].max() + 12
    assert y.min() >= lips[:, 1].min() - 12
    assert y.max() <= lips[:, 1].max() + 12
    middle = points()[[17, 314, 84], :2].mean(axis=0)
    red, green, blue = out[int(middle[1]) - 1, int(middle[0])].astype(int)
    assert red > blue > green
    assert (made(gray, result(None), 1.0) == gray).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lip:#a02040", 'no "lip"; did you mean'),
        ("lips:red", '"red" is not a colour'),
        ("lips:#a0204", "is not a colour"),
        ("lips", "is not a colour"),
    ],
)
def test_wrong_makeup_is_named(text: str, said: str) -> None:
    with pytest.raises(InputError, match=said) as e:
        effect(f"makeup={text}", Painter())
    assert "#" in str(e.value.hint)


def test_hair_needs_a_segmentation() -> None:
    made = effect("makeup=hair:#30a040", Painter())
    gray = np.full_like(frame(), 90)
    with pytest.raises(InputError, match="needs a segmentation"):
        made(gray, result(points()), 0.0)
    person = np.zeros((48, 64), np.float32)
    person[4:, 16:48] = 1
    segments = Segments(person, None, View.of(SIZE, (64, 48), Fit()), 0.5)
    both = CascadeObject(1, {"mesh": result(points()), "selfie": segments})
    out = made(gray, CascadeResult((both,)), 0.1)
    y, _ = np.argwhere((out != gray).any(axis=2)).T
    # Above the eyes only.
    assert y.max() < points()[:, 1].mean()
    assert out[14, 80, 1] > out[14, 80, 0]


def test_points_of_a_hand_are_no_face() -> None:
    hand = result(points())
    few = type(hand)(hand.points[:21], hand.scores[:21], hand.shown[:21], 1.0, None)
    for text in ("puppet", "mask=glasses", "makeup=lips:#a02040"):
        with pytest.raises(InputError, match="is for face points, not for points"):
            effect(text, Painter())(frame(), few)
