"""The motion of a driver, and portraits that follow it."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from edgec_runtime.face.alignment import align, rotation_of, rotation_vector
from edgec_runtime.face.landmarks import (
    LOWER_MOUTH,
    OVAL,
    UPPER_MOUTH,
    face_layout,
    openings,
)
from edgec_runtime.face.lids import EYES, UNDER
from edgec_runtime.face.motion import NEUTRAL_FRAMES, Driver, FaceMotion
from edgec_runtime.face.mouth import mouth_picture
from edgec_runtime.face.point_file import portrait_points
from edgec_runtime.face.points import depth_scale
from edgec_runtime.face.portrait import Portrait
from edgec_runtime.face.puppet import SKIN, puppet
from edgec_runtime.face.warping import warp_into
from edgec_runtime.vision.photo import read_photo
from edgec_runtime.webcam.effects import Painter
from edgec_runtime.webcam.effects.avatar import drawn, framed
from numpy.testing import assert_allclose

from benchmarks.face_motions import POSES, FacePose, motion_of
from edgec.ir import Array
from edgec.verbs.demo import fixtures
from tests.face.faces import SIZE, points


def _driven(pose: FacePose, depth: float = 1.0, exact_lids: bool = False) -> FaceMotion:
    """What a driver sees of a pose, after a while at rest."""
    driver = Driver()
    for _ in range(NEUTRAL_FRAMES):
        driver(points(depth=depth))
    motion = driver(points(pose, depth), exact_lids)
    assert motion is not None
    return motion


@pytest.fixture(scope="module")
def portrait() -> Portrait:
    return puppet(SIZE)


def test_edges_of_openings_and_the_outline_are_edges_of_triangles() -> None:
    triangles = face_layout().triangles
    pairs = np.concatenate([triangles[:, [a, b]] for a, b in ((0, 1), (1, 2), (2, 0))])
    edges, counts = np.unique(np.sort(pairs, axis=1), axis=0, return_counts=True)
    border = {tuple(edge) for edge in edges[counts == 1].tolist()}
    wanted = {tuple(sorted(p)) for p in zip(OVAL, (*OVAL[1:], OVAL[0]), strict=True)}
    for chains in openings():
        for chain in chains:
            wanted |= {tuple(sorted(p)) for p in pairwise(chain)}
    assert border == wanted
    assert set(counts) == {1, 2}
    assert set(triangles.ravel()) == set(range(468))


def test_an_alignment_is_found_again() -> None:
    layout = face_layout().points
    turn = np.array([0.2, -0.4, 0.3])
    moved = 3.0 * layout @ rotation_of(turn).T + [5, -2, 7]
    pose = align(layout, moved)
    assert pose.scale == pytest.approx(3.0)
    assert_allclose(rotation_vector(pose.rotation), turn, atol=1e-9)
    assert_allclose(pose.apply(layout), moved, atol=1e-9)
    assert_allclose(pose.undo(moved), layout, atol=1e-9)


@pytest.mark.parametrize("name", sorted(POSES))
def test_a_driver_sees_the_motion_of_the_head(name: str) -> None:
    wanted = motion_of(POSES[name], face_layout().points)
    motion = _driven(POSES[name])
    assert_allclose(motion.turn, wanted.turn, atol=0.01)
    assert motion.growth == pytest.approx(wanted.growth, abs=0.01)
    assert_allclose(motion.shift[:2], wanted.shift[:2], atol=0.02)


@pytest.mark.parametrize("depth", [1.0, 0.25, 3.0])
def test_the_unit_of_a_networks_depth_does_not_matter(depth: float) -> None:
    assert depth_scale(points(depth=depth)) == pytest.approx(1 / depth, rel=0.1)
    turn = _driven(FacePose(turn=(0.0, 0.25, 0.0)), depth).turn
    assert_allclose(turn, [0, 0.25, 0], atol=0.02)


def test_faces_without_depth_turn_too() -> None:
    flat = points()
    flat[:, 2] = np.nan
    driver = Driver()
    for _ in range(NEUTRAL_FRAMES):
        driver(flat)
    turned = points(FacePose(turn=(0.0, 0.25, 0.0)))
    turned[:, 2] = np.nan
    motion = driver(turned)
    assert motion is not None
    assert_allclose(motion.turn, [0, 0.25, 0], atol=0.05)


def test_a_neutral_pose_is_taken_anew() -> None:
    driver = Driver()
    tilted = points(FacePose(turn=(0.0, 0.0, 0.2)))
    for _ in range(NEUTRAL_FRAMES - 1):
        assert driver(tilted) is None
    first = driver(tilted)
    assert first is not None
    assert np.abs(first.turn).max() < 1e-6
    driver.renew()
    for _ in range(NEUTRAL_FRAMES - 1):
        assert driver(points()) is None
    last = driver(tilted)
    assert last is not None
    assert last.turn[2] > 0.1


def test_a_blink_in_the_first_frames_is_no_part_of_the_neutral_pose() -> None:
    driver = Driver()
    for i in range(NEUTRAL_FRAMES):
        blinks = 1.0 if i < 4 else 0.0
        driver(points(FacePose(left_lid=blinks, right_lid=blinks)))
    motion = driver(points())
    assert motion is not None
    assert np.abs(motion.expression).max() < 1e-3


def test_tremor_rests_and_motion_does_not() -> None:
    rng = np.random.default_rng(0)
    driver = Driver()
    for _ in range(NEUTRAL_FRAMES):
        driver(points() + rng.normal(0, 0.05, (468, 3)))
    still = driver(points() + rng.normal(0, 0.05, (468, 3)))
    moved = driver(points(FacePose(jaw=0.12)))
    assert still is not None
    assert moved is not None
    assert np.abs(still.expression).max() < 0.002
    lip = LOWER_MOUTH[5]
    assert moved.expression[lip, 1] == pytest.approx(0.12, rel=0.15)


def test_eyes_close_one_by_one() -> None:
    assert _driven(FacePose()).closed().max() < 0.01
    left, right = _driven(FacePose(left_lid=1.0)).closed()
    assert left > 0.95
    assert right < 0.05


def test_half_an_eye_is_closed_to_a_mesh_and_half_to_a_network_for_lids() -> None:
    half = FacePose(left_lid=0.4, right_lid=0.35)
    assert _driven(half).closed().min() > 0.75
    assert 0.4 < _driven(half, exact_lids=True).closed().min() < 0.6
    # A pose that is known needs no network's measure.
    known = motion_of(half, face_layout().points)
    assert_allclose(known.closed(), [0.4, 0.35], atol=1e-6)


@pytest.mark.parametrize("name", sorted(POSES))
def test_no_pose_leaves_a_hole(portrait: Portrait, name: str) -> None:
    warp = portrait.warp(_driven(POSES[name]))
    white = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    full = np.full_like(warp.source, 255)
    warp_into(replace(warp, source=full), white)
    assert (white == 255).all()


def test_the_border_of_the_picture_stays(portrait: Portrait) -> None:
    far = FacePose(turn=(0.3, 0.9, 0.5), shift=(2.0, 1.0), growth=1.0)
    out = _drawn(portrait, _driven(far))
    still = portrait.picture.astype(int)
    for border in (np.s_[0], np.s_[-1], np.s_[:, 0], np.s_[:, -1]):
        assert np.abs(out[border] - still[border]).max() <= 2


def test_a_portrait_at_rest_is_its_picture(portrait: Portrait) -> None:
    out = _drawn(portrait, _driven(FacePose()))
    assert np.abs(out.astype(int) - portrait.picture).max() <= 2


def test_a_mouth_that_opens_shows_an_inside(portrait: Portrait) -> None:
    motion = _driven(FacePose(jaw=0.2))
    assert portrait.shows_mouth(motion)
    assert not portrait.shows_mouth(_driven(FacePose()))
    out = _drawn(portrait, motion)
    moved = portrait.moved(motion)
    upper = moved[UPPER_MOUTH[5], :2]
    lower = moved[LOWER_MOUTH[5], :2]
    assert lower[1] - upper[1] > 4
    x, y = (upper * 0.2 + lower * 0.8).astype(int)
    # Dark: neither lips nor skin.
    assert out[y, x].max() < 110


def test_a_mouth_has_teeth_and_gets_darker_towards_the_throat() -> None:
    head = puppet((640, 480))
    inside = mouth_picture(head.picture, head.points)
    width = inside.pixels.shape[1]
    luma = inside.pixels[:, width // 2].mean(axis=1)
    teeth, behind, throat, tongue = luma[
        [round(v * width) for v in (0.08, 0.19, 0.36, 0.6)]
    ]
    assert teeth > 150
    assert behind < 60
    assert throat * 2 < behind
    assert throat * 2 < tongue


@pytest.mark.parametrize("glasses", [False, True])
def test_closed_lids_have_the_colour_of_the_skin_about_them(glasses: bool) -> None:
    head = puppet((640, 480))
    picture = head.picture.copy()
    if glasses:
        for _, _, skin in EYES:
            x, y = head.points[list(skin), :2].astype(int).T
            # A dark frame, as it lies above the eyes of most who wear glasses.
            picture[y.min() - 6 : y.max() + 2, x.min() - 8 : x.max() + 8] = 30
    portrait = Portrait(picture, head.points)
    motion = motion_of(FacePose(left_lid=1.0, right_lid=1.0), portrait.shape)
    out = drawn(portrait, motion, Painter())
    face = portrait.moved(motion)
    for upper, _, skin in EYES:
        middle = face[list(skin[3:-3]), :2] * 0.3 + face[list(upper[3:-3]), :2] * 0.7
        x, y = middle.astype(int).T
        assert np.abs(out[y, x].astype(int) - SKIN).max() < 30


def test_the_lids_of_a_cat_are_no_patches() -> None:
    path = fixtures() / "portraits" / "cat.png"
    face = portrait_points(path.with_suffix(".json"))
    assert face is not None
    portrait = framed(read_photo(path), face, (640, 480))
    motion = motion_of(FacePose(left_lid=1.0, right_lid=1.0), portrait.shape)
    out = drawn(portrait, motion, Painter()).astype(int)
    moved = portrait.moved(motion)[:, :2]
    for (upper, _, skin), under in zip(EYES, UNDER, strict=True):
        lid = moved[list(skin[3:-3])] * 0.4 + moved[list(upper[3:-3])] * 0.6
        about = np.concatenate([moved[list(skin[3:-3])], moved[list(under[3:-3])]])
        lid_color = np.median([out[int(y), int(x)] for x, y in lid], axis=0)
        skin_color = np.median([out[int(y), int(x)] for x, y in about], axis=0)
        assert np.abs(lid_color - skin_color).max() < 30


def _drawn(portrait: Portrait, motion: FaceMotion) -> Array:
    out = np.zeros((SIZE[1], SIZE[0], 3), np.uint8)
    warp_into(portrait.warp(motion), out)
    return out
