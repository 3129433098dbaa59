"""The options of `edgec diff`."""

from __future__ import annotations

from dataclasses import dataclass, field

from edgec_devices.options import FilePath, argument, option

from edgec.errors import InputError
from edgec.options.compile import InputOptions
from edgec.options.declaration import ProgressOption, part


@dataclass(frozen=True)
class _Sides:
    a: FilePath = field(
        metadata=argument(
            "a model or a bundle, perhaps after what is to run it: net.onnx, "
            "litert:net.tflite (docs/diff.md)"
        )
    )
    b: FilePath = field(
        metadata=argument("the other; it is the one whose layers are judged")
    )
    inputs: FilePath = field(
        metadata=option("photos, a folder of them, or an .npz, to compare on")
    )


@dataclass(frozen=True, kw_only=True)
class DiffOptions(ProgressOption, InputOptions, _Sides):
    """The options of `edgec diff`.

    Raises InputError for impossible values.
    """

    samples: int = field(
        default=8,
        metadata=option(
            "at most so many of them, spread over all", metavar="N", show_default=True
        ),
    )
    calibrate: FilePath | None = field(
        default=None,
        metadata=option("for int8:, data to quantize with (default: the inputs)"),
    )
    quantize: FilePath = field(
        default="fast",
        metadata=option(
            "for int8:, as for compile", metavar="RECIPE", show_default=True
        ),
    )
    cc: str | None = field(
        default=None,
        metadata=option("a C compiler of this machine, instead of zig"),
    )

    @property
    def model_inputs(self) -> InputOptions:
        """The options about the inputs of a model."""
        return part(self, InputOptions)

    def __post_init__(self) -> None:
        if self.samples < 1:
            raise InputError(
                f"nothing can be compared on {self.samples} inputs",
                "--samples",
                "give 1 or more",
            )
