"""Checks that the networks of a cascade fit together: tasks, and points of crops."""

from __future__ import annotations

from typing import Mapping, NoReturn, Tuple

from ..bundle.manifest import Manifest, image_size
from ..errors import InputError
from ..vision.regions import CORNERS
from ..vision.tasks.base import Task
from ..vision.tasks.classification import Classification
from ..vision.tasks.detection import Detection
from ..vision.tasks.points import Landmarks
from ..vision.tasks.text_detection import TextDetection
from ..vision.tasks.text_recognition import TextRecognition
from .parameters import Cascade, CropRule

_DETECTOR_TASKS = (Detection, Landmarks, TextDetection)
_CROP_TASKS = (Detection, Landmarks, Classification, TextRecognition)
"""Tasks of networks on crops; masks and pictures of turned crops are not supported."""


def check_bundles(cascade: Cascade, manifests: Mapping[str, Manifest], at: str) -> None:
    """Check the bundle of each network, and the points in the rules of its crops.

    Args:
        cascade: the cascade
        manifests: the manifests by the networks' names, except for networks that run the
            bundle of another
        at: the cascade's file, for messages

    Raises:
        InputError: the first fault
    """
    _check_versions(manifests, at)
    # Networks on different crops may run the same bundle.
    manifest_of = {n.name: manifests[n.like or n.name] for n in cascade.networks}
    for network in cascade.networks:
        manifest = manifest_of[network.name]
        allowed = _DETECTOR_TASKS if network is cascade.detector else _CROP_TASKS
        _check_task(network.name, manifest, allowed, at)
        if network.crop is not None:
            assert network.after is not None, "parse_cascade has seen it"
            parent = manifest_of[network.after]
            where = f"{network.name}.crop"
            _check_rule(network.crop, (network.after, parent), where, at)
        if network.again is not None:
            where = f"{network.name}.again"
            _check_rule(network.again, (network.name, manifest), where, at)


def _check_versions(manifests: Mapping[str, Manifest], at: str) -> None:
    """Refuse networks of several versions of edgec, since their code shares threads."""
    versions = sorted({manifest.edgec for manifest in manifests.values()})
    if len(versions) > 1:
        _refuse(
            f"its networks are of edgec {' and '.join(versions)}",
            at,
            "compile the cascade again",
        )


def _check_task(
    name: str, manifest: Manifest, allowed: Tuple[type, ...], at: str
) -> None:
    """Refuse a network whose inputs or task cannot be used in a cascade."""
    kinds = ", ".join(task.kind for task in allowed)  # type: ignore[attr-defined]
    if manifest.task is None:
        _refuse(
            f'nobody says what the outputs of the network "{name}" mean',
            at,
            f"give it a task: {kinds}",
        )
    if not isinstance(manifest.task, allowed):
        _refuse(
            f'the network "{name}" is for {manifest.task.kind}',
            at,
            f"it may be {kinds}",
        )
    # A cascade can fill only one input, from a frame.
    images = [n for n in manifest.inputs if n in manifest.preprocess]
    if len(manifest.inputs) != 1 or not images or image_size(manifest) is None:
        _refuse(
            f'the network "{name}" has other inputs than one image',
            at,
            "fix the others when it is compiled (fix)",
        )
    if manifest.state:
        _refuse(
            f'the network "{name}" keeps state from call to call, and a cascade may '
            "call it for several objects",
            at,
            "use a network without state",
        )


def _check_rule(
    rule: CropRule, parent: Tuple[str, Manifest], where: str, at: str
) -> None:
    """Refuse a rule with points that the network does not have.

    Args:
        rule: the rule
        parent: name and manifest of the network to whose result it is applied
        where: the rule's name in messages
        at: the cascade's file
    """
    name, manifest = parent
    assert manifest.task is not None, "_check_task has seen it"
    count = point_count(manifest.task, manifest)
    if rule.most() >= count:
        _refuse(
            f'{where} names point {rule.most()}, and "{name}" has {count} points',
            at,
            f"name points of 0 to {count - 1}" if count else "leave the points out",
        )
    if not isinstance(manifest.task, _DETECTOR_TASKS):
        _refuse(
            f'{where}: "{name}" is for {manifest.task.kind}, which has no place',
            at,
            "crops follow from boxes or points",
        )


def point_count(task: Task, manifest: Manifest) -> int:
    """Return the number of points in a result of a bound task."""
    if isinstance(task, Detection):
        return task.points
    if isinstance(task, TextDetection):
        return len(CORNERS)
    if not isinstance(task, Landmarks):
        return 0
    # The output is known, since the task is bound.
    return task.point_count(manifest.tensors[str(task.output)].shape)


def _refuse(what: str, at: str, hint: str) -> NoReturn:
    raise InputError(what, at=at, hint=f"{hint}; see docs/cascades.md")
