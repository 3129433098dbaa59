"""Which objects are followed, when the detector runs, and which numbers they keep."""

from __future__ import annotations

from edgec_runtime.cascade.tracker import REMEMBERED, Tracker
from edgec_runtime.vision.crop import Crop


def at(x: float) -> Crop:
    return Crop(x, 100, 40, 40)


def numbers(tracker: Tracker) -> list[int]:
    return [track.identity for track in tracker.tracks]


def test_the_detector_rests_while_objects_are_followed() -> None:
    tracker = Tracker(objects=2, every=3, follows=True)
    ran = []
    for frame in range(8):
        ran.append(tracker.wants_detector())
        if ran[-1]:
            assert tracker.detected([at(100 + frame)]) == (1,)
        tracker.update([at(101 + frame)])
    assert ran == [True, False, False, True, False, False, True, False]


def test_with_every_0_it_rests_until_one_is_lost() -> None:
    tracker = Tracker(objects=2, every=0, follows=True)
    tracker.detected([at(100), at(200)])
    for _ in range(100):
        tracker.update([at(100), at(200)])
        assert not tracker.wants_detector()
    tracker.update([at(100), None])
    assert tracker.wants_detector()
    assert tracker.detected([at(102), at(203)]) == (1, 2)


def test_a_followed_object_is_where_its_points_say() -> None:
    tracker = Tracker(objects=2, every=1, follows=True)
    tracker.detected([at(100)])
    tracker.update([at(104)])
    # The detector's box trembles more than the points.
    tracker.detected([at(110)])
    assert tracker.tracks[0].crop == at(104)


def test_without_following_the_detector_says_where_they_are() -> None:
    tracker = Tracker(objects=2, every=10, follows=False)
    tracker.detected([at(100), at(200)])
    tracker.update([at(100), at(200)])
    assert tracker.wants_detector()
    # In another order, and moved.
    assert tracker.detected([at(208), at(108)]) == (2, 1)
    assert [track.crop for track in tracker.tracks] == [at(108), at(208)]


def test_a_number_waits_for_its_object_and_is_not_used_again() -> None:
    tracker = Tracker(objects=2, every=0, follows=True)
    tracker.detected([at(100)])
    tracker.update([at(100)])
    tracker.update([None])
    for _ in range(REMEMBERED - 1):
        assert tracker.detected([]) == ()
        tracker.update([])
    assert tracker.detected([at(105)]) == (1,)
    tracker.update([at(105)])
    tracker.update([None])
    for _ in range(REMEMBERED):
        tracker.update([])
    # Too long ago: who is there now is somebody else.
    assert tracker.detected([at(105)]) == (2,)


def test_nobody_waits_for_an_object_that_was_none() -> None:
    tracker = Tracker(objects=2, every=0, follows=True)
    tracker.detected([at(100), at(300)])
    # The second was a poster: the network behind the detector did not know it.
    tracker.update([at(100), None])
    assert not tracker.wants_detector()


def test_there_are_no_more_than_the_cascade_says() -> None:
    tracker = Tracker(objects=1, every=1, follows=False)
    assert tracker.detected([at(100), at(200)]) == (1, None)


def test_more_finds_are_tried_than_are_followed() -> None:
    tracker = Tracker(objects=1, every=1, follows=True)
    # The best find is none, and must not keep the second one out.
    assert tracker.detected([at(100), at(200), at(300)]) == (1, 2, None)
    tracker.update([None, at(200)])
    assert numbers(tracker) == [2]
    # Those that are followed go before a better find.
    assert tracker.detected([at(300), at(200)]) == (3, 2)
    assert numbers(tracker) == [2, 3]


def test_two_finds_of_one_object_are_one() -> None:
    tracker = Tracker(objects=4, every=1, follows=True)
    tracker.detected([at(100)])
    tracker.update([at(100)])
    assert tracker.detected([at(100), at(104)]) == (1, None)


def test_two_that_come_upon_one_object_are_the_older_one() -> None:
    tracker = Tracker(objects=2, every=0, follows=True)
    tracker.detected([at(100), at(200)])
    tracker.update([at(150), at(152)])
    assert numbers(tracker) == [1]
