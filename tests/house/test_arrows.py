"""Who may import whom (docs/architecture.md): a table, not an order."""

from __future__ import annotations

import ast
import sys
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = [
    "edgec",
    "partitioner/edgec_partitioner",
    "runtime/edgec_runtime",
    "devices/edgec_devices",
]
DEVICE_BASE = {"edgec_runtime.device_end.disk", "edgec_runtime.device_end.printable"}
BASE = {"edgec.errors", "edgec.steps", "edgec.version", "edgec_runtime", *DEVICE_BASE}
MODEL = {*BASE, "edgec.ir", "edgec.ops"}
WORK = {
    *MODEL,
    "edgec.catalogue",
    "edgec.frontends",
    "edgec.analysis",
    "edgec.passes",
    "edgec.measure",
    "edgec.quantize",
    "edgec.schedule",
    "edgec.emit",
    "edgec.toolchain",
    "edgec_partitioner",
    "edgec_devices",
    "edgec_devices.boards",
    "edgec_devices.decoding",
    "edgec_devices.intervals",
    "edgec_devices.temporary",
}
# A room: those it may import, besides itself. A module is of the room with the longest
# name that it starts with.
TABLE = {
    "edgec.cli": {
        "edgec",
        "edgec.catalogue",
        "edgec.options",
        "edgec.compiler",
        "edgec.exporting",
        "edgec.inspecting",
        "edgec.verbs",
        "edgec.report",
        "edgec.benching",
        "edgec.evaluation",
        "edgec_devices",
        *BASE,
    },
    "edgec.__main__": {"edgec.cli"},
    "edgec": {
        "edgec.options",
        "edgec.compiler",
        "edgec.exporting",
        "edgec.inspecting",
        "edgec.evaluation",
        "edgec.verbs",
        "edgec.benching",
        "edgec.comparing",
        *WORK,
    },
    "edgec.exporting": {"edgec.options", "edgec.report", *WORK},
    "edgec.sharing": {
        "edgec.benching",
        "edgec.emit",
        "edgec_devices",
        "edgec_devices.boards",
        "edgec_devices.cores",
        "edgec_runtime.device_end",
        *MODEL,
    },
    "edgec.inspecting": {
        "edgec.edgetpu_file",
        "edgec.measure",
        "edgec.benching",
        "edgec.quantize",
        "edgec.emit",
        "edgec.toolchain",
        "edgec_devices",
        "edgec_devices.boards",
        "edgec_devices.decoding",
        "edgec_partitioner",
        "edgec_runtime.device_end",
        "edgec_runtime.edgetpu_file",
        *BASE,
    },
    "edgec.edgetpu_file": {"edgec.ops", "edgec_runtime.edgetpu_file", *BASE},
    "edgec.options": {
        "edgec.errors",
        "edgec.frontends",
        "edgec_devices",
        "edgec_runtime",
    },
    "edgec.verbs": {
        "edgec.options",
        "edgec.compiler",
        "edgec.evaluation",
        "edgec.report",
        "edgec.sharing",
        "edgec.benching",
        "edgec.comparing",
        "edgec.executors",
        *WORK,
    },
    "edgec.compiler": {
        "edgec.options",
        "edgec.evaluation",
        "edgec.float16",
        "edgec.report",
        "edgec.benching",
        "edgec.comparing",
        "edgec.executors",
        *WORK,
    },
    "edgec.evaluation": {
        "edgec_devices",
        "edgec_devices.decoding",
        "edgec.benching",
        "edgec.comparing",
        *MODEL,
    },
    "edgec.report": {
        "edgec.edgetpu_file",
        "edgec.measure",
        "edgec.options",
        "edgec.evaluation",
        "edgec.benching",
        "edgec.inspecting",
        "edgec.comparing",
        "edgec_partitioner",
        "edgec_devices",
        "edgec_devices.intervals",
        "edgec.emit",
        "edgec.quantize",
        "edgec.schedule",
        "edgec_runtime.device_end",
        *MODEL,
    },
    "edgec.benching": {
        "edgec.options",
        "edgec_devices",
        "edgec_devices.decoding",
        "edgec_devices.intervals",
        "edgec.emit",
        *BASE,
    },
    "edgec.measure": MODEL,
    "edgec.comparing": {"edgec.analysis", "edgec.quantize", "edgec.measure", *MODEL},
    "edgec.emit": {"edgec_partitioner", "edgec.schedule", *MODEL},
    "edgec.schedule": {
        "edgec_devices.boards",
        "edgec_devices.cores",
        "edgec_devices",
        *MODEL,
    },
    "edgec.toolchain": {
        "edgec.edgetpu_file",
        "edgec.frontends",
        "edgec_devices",
        "edgec_devices.boards",
        "edgec_devices.decoding",
        "edgec_devices.temporary",
        *BASE,
    },
    "edgec.quantize": {
        "edgec.measure",
        "edgec_devices.decoding",
        "edgec.analysis",
        "edgec.passes",
        "edgec.executors",
        *MODEL,
    },
    "edgec.passes": {"edgec.analysis", *MODEL},
    "edgec.float16": {"edgec.quantize", "edgec.measure", *MODEL},
    "edgec.analysis": MODEL,
    "edgec.frontends": {"edgec_devices.decoding", "edgec_devices.temporary", *MODEL},
    "edgec.ops": {"edgec.ir", *BASE},
    "edgec.ir": BASE,
    "edgec.catalogue": {
        "edgec_devices",
        "edgec_devices.decoding",
        "edgec_devices.temporary",
        *BASE,
    },
    "edgec.errors": {"edgec_runtime"},
    "edgec.executors": {"edgec.errors"},
    "edgec.steps": set(),
    "edgec.version": set(),
    "edgec_partitioner": {
        "edgec.passes",
        "edgec.schedule",
        "edgec_devices.boards",
        "edgec_devices.intervals",
        *MODEL,
    },
    "edgec_devices.stick": {
        "edgec_partitioner",
        "edgec.edgetpu_file",
        "edgec.frontends",
        "edgec_devices.decoding",
        *MODEL,
    },
    "edgec_devices": {
        "edgec_devices.boards",
        "edgec_devices.cores",
        "edgec_devices.decoding",
        "edgec_devices.intervals",
        "edgec_devices.temporary",
        "edgec_runtime",
        "edgec_runtime.device_end",
        *DEVICE_BASE,
    },
    "edgec_devices.boards": {
        "edgec_devices.cores",
        "edgec_devices.decoding",
        "edgec_devices.intervals",
        "edgec_runtime",
        *DEVICE_BASE,
    },
    "edgec_devices.cores": {"edgec_devices.decoding"},
    "edgec_devices.decoding": {"edgec_runtime", *DEVICE_BASE},
    "edgec_devices.intervals": set(),
    "edgec_devices.temporary": set(),
    "edgec_runtime": {"edgec_runtime.device_end", *DEVICE_BASE},
    "edgec_runtime.interpreter": {"edgec_runtime"},
    "edgec_runtime.coral": {
        "edgec_runtime",
        "edgec_runtime.device_end",
        "edgec_runtime.interpreter",
    },
    "edgec_runtime.device_end": DEVICE_BASE,
    "edgec_runtime.device_end.disk": set(),
    "edgec_runtime.device_end.printable": set(),
}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    start = next(i for i, p in enumerate(parts) if p.startswith("edgec"))
    return ".".join(parts[start:]).removesuffix(".__init__")


def _room(module: str) -> str | None:
    found = [room for room in TABLE if module == room or module.startswith(f"{room}.")]
    return max(found, key=len, default=None)


def _imports(path: Path, anywhere: bool = True) -> set[str]:
    """Of the whole file, or of its top alone: what runs when it is imported."""
    tree = ast.parse(path.read_text())
    found = set[str]()
    for node in ast.walk(tree) if anywhere else tree.body:
        if isinstance(node, ast.Import):
            found.update(a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                if path.name == "__init__.py":
                    package = _module(path).split(".")
                else:
                    package = _module(path).split(".")[:-1]
                base = ".".join(
                    [
                        *package[: len(package) - node.level + 1],
                        *([base] if base else []),
                    ]
                )
            found.update(_meant(base, a.name) for a in node.names)
    return found


def _meant(base: str, name: str) -> str:
    """What `from base import name` reads: the module base.name if there is one, else
    base.
    """
    return f"{base}.{name}" if f"{base}.{name}" in MODULES else base


def _files() -> list[Path]:
    return [p for package in PACKAGES for p in sorted((ROOT / package).rglob("*.py"))]


MODULES = {_module(p) for p in _files()}


def test_imports_are_in_the_table() -> None:
    for path in _files():
        mine = _room(_module(path))
        assert mine is not None, f"{_module(path)} is in no room"
        for name in _imports(path):
            theirs = _room(name)
            assert theirs in (None, mine) or theirs in TABLE[mine], (
                f"{_module(path)} imports {name}: {mine} may not"
            )


def test_rooms_make_no_circle() -> None:
    TopologicalSorter(TABLE).prepare()


def test_modules_make_no_circle() -> None:
    """Neither where they are imported nor inside a function nor for types alone."""
    TopologicalSorter(
        {_module(p): _imports(p) & MODULES - {_module(p)} for p in _files()}
    ).prepare()


LATE = {
    "photo.py": {"PIL"},
    "camera.py": {"PIL"},
    "decoding.py": {"PIL"},
    "http_service.py": {"PIL"},
    "zmq_service.py": {"zmq"},
    "mqtt_service.py": {"paho.mqtt.client", "paho.mqtt.enums"},
}
"""What files of the device side import inside a function, since a device may lack it."""


def test_the_device_side_needs_only_numpy() -> None:
    """Pillow, which a device may lack, is asked for where a photo is decoded, when one
    is; libraries of a service's protocols where it starts.
    """
    allowed = {
        "numpy",
        "edgec_runtime",
        "ai_edge_litert",
        "tflite_runtime",
        "pycoral",
        "__future__",
    }
    for path in sorted((ROOT / "runtime" / "edgec_runtime").rglob("*.py")):
        known = allowed - {"numpy"} if "device_end" in path.parts else allowed
        late = LATE.get(path.name, set()) - _imports(path, anywhere=False)
        for name in _imports(path) - late:
            top = name.split(".")[0]
            assert top in known or top in sys.stdlib_module_names, (
                f"{path.name} imports {name}"
            )
