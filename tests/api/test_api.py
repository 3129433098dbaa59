"""The Python API: every verb a function with the options of the command line; wrong
types end in errors of edgec.
"""

from __future__ import annotations

import inspect
import pydoc
from pathlib import Path
from typing import Any

import click
import pytest
from edgec_runtime.errors import EdgecError

import edgec
from edgec.cli.main import cli

SHOWN = {"as_json", "quiet"}
"""Options about what is printed: Python gets the values."""
ONLY_CLI = {
    "explain": {"html", "ops"},  # the report comes back
    "diff": {
        "html",
        "json_file",
        "order",
        "every",
        "min_sqnr",
    },  # so does the comparison
    "inspect": {"html", "disassemble", "assemble", "simulate"},
    "demo": None,
}
ONLY_PYTHON = {"progress", "ask", "confirm", "executor", "example_inputs"}
"""What the command line takes from the terminal, and objects."""


def _verbs() -> dict[str, click.Command]:
    context = click.Context(cli)
    return {
        name: command
        for name in cli.list_commands(context)
        if (command := cli.get_command(context, name))
    }


@pytest.mark.parametrize(
    "name", [n for n in _verbs() if ONLY_CLI.get(n, ()) is not None]
)
def test_every_verb_is_a_function_with_the_same_options(name: str) -> None:
    assert name in edgec.__all__
    options = {p.name for p in _verbs()[name].params if p.name not in SHOWN}
    hidden = ONLY_CLI.get(name) or set()
    taken = set(inspect.signature(getattr(edgec, name)).parameters) - ONLY_PYTHON
    # What Python gives as an argument is a verb of its own there: `edgec models get`.
    own_verbs = set(getattr(_verbs()[name], "commands", ()))
    assert taken - own_verbs == options - hidden


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: edgec.compile(7), "compile(model=7)"),  # type: ignore[arg-type]
        (lambda: edgec.compile("a.onnx", 4), "compile(target=4)"),  # type: ignore[arg-type]
        (lambda: edgec.compile("a.onnx", input_shapes={"x": "1x3"}), "input_shapes"),  # type: ignore[dict-item]
        (lambda: edgec.explain(None), "explain(model=None)"),  # type: ignore[arg-type]
        (lambda: edgec.run("a.edgec", [1]), "run(inputs=[1])"),  # type: ignore[arg-type]
        (lambda: edgec.bench("a.edgec", budgets=5), "bench(budgets=5)"),  # type: ignore[arg-type]
        (lambda: edgec.explain("a.onnx", disable="gelu"), "explain(disable='gelu')"),
        (lambda: edgec.bench("a.edgec", budgets="p95<=1s"), "bench(budgets='p95<=1s')"),
        (lambda: edgec.flash("a.edgec", 3), "flash(on=3)"),  # type: ignore[arg-type]
        (lambda: edgec.rollback("local:", app=1), "rollback(app=1)"),  # type: ignore[arg-type]
        (lambda: edgec.status(b"local:"), "status(on="),  # type: ignore[arg-type]
        (lambda: edgec.devices(probe="yes"), "devices(probe='yes')"),  # type: ignore[arg-type]
        (lambda: edgec.package("a.edgec", arch=64), "package(arch=64)"),  # type: ignore[arg-type]
        (lambda: edgec.sign(1), "sign(file=1)"),  # type: ignore[arg-type]
        (lambda: edgec.trust(1, "local:"), "trust(key=1)"),  # type: ignore[arg-type]
        (lambda: edgec.doctor(1), "doctor(on=1)"),  # type: ignore[arg-type]
        (lambda: edgec.finish(1), "finish(folder=1)"),  # type: ignore[arg-type]
        (lambda: edgec.inspect(7), "inspect(bundle=7)"),  # type: ignore[arg-type]
        (lambda: edgec.export("a.edgec", c=4), "export(c=4)"),
        (lambda: edgec.tune("a.edgec", executor=4), "tune(executor=4)"),  # type: ignore[arg-type]
    ],
)
def test_wrong_types_are_errors_of_edgec(call: Any, said: str) -> None:
    with pytest.raises(EdgecError) as e:
        call()
    assert said in e.value.what
    assert "type" in e.value.what
    assert e.value.exit_code == 2


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: edgec.bench("a.edgec", budgts=1), 'did you mean "budgets"'),  # type: ignore[call-arg]
        (lambda: edgec.flash("a.edgec"), "missing a required argument: 'on'"),  # type: ignore[call-arg]
        (lambda: edgec.inspect("a.edgec", "key.pub"), "too many positional arguments"),  # type: ignore[call-arg]
    ],
)
def test_wrong_arguments_are_errors_of_edgec(call: Any, said: str) -> None:
    with pytest.raises(EdgecError) as e:
        call()
    assert said in e.value.what
    assert e.value.exit_code == 2


@pytest.mark.parametrize("seconds", [-1.0, 0.0, float("nan"), float("inf")])
def test_nobody_waits_for_no_time(seconds: float, tmp_path: Path) -> None:
    with pytest.raises(EdgecError, match="cannot wait for"):
        edgec.doctor("local:", timeout=seconds)


def test_help_shows_the_verbs_and_no_internals() -> None:
    text = pydoc.plain(pydoc.render_doc(edgec))
    functions = text.split("\nFUNCTIONS\n")[1].split("\nDATA\n")[0]
    shown = {
        line.strip().split("(")[0]
        for line in functions.splitlines()
        if line[:4].isspace() and line[4:5].strip()
    }
    assert shown == set(edgec.__all__) - {"__version__"}
    assert "Options" not in functions
    assert "_path" not in text


def test_what_a_verb_takes_is_documented() -> None:
    for name in edgec.__all__[1:]:
        fn = getattr(edgec, name)
        words = inspect.getdoc(fn) or ""
        for parameter in set(list(inspect.signature(fn).parameters)[1:]) - {"on"}:
            assert parameter in words or name == "explain", f"{name}({parameter})"


def test_a_signed_package_through_python(tmp_path: Path) -> None:
    """What fleets do, without a command line."""
    key = tmp_path / "key"
    assert edgec.sign(new_key=key).fingerprint.startswith("SHA256:")
    assert key.with_name("key.pub").is_file()
    with pytest.raises(EdgecError, match="there is nothing to sign"):
        edgec.sign()
