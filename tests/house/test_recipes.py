"""The recipes of CONTRIBUTING.md, followed in a copy of the repository."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("edgec", "partitioner", "runtime", "devices", "fixtures", "tests")
"""What the copy has, beside pyproject.toml."""
BLOCK = re.compile(r"^```(python|c)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w/]+\.(?:py|h))`")
COMMAND = re.compile(r"^    pytest (.+)$", re.MULTILINE)


def recipes() -> dict[str, str]:
    """Return the text of each recipe by its title."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)[1:]
    sections = dict(zip(parts[::2], parts[1::2], strict=True))
    return {title: body for title, body in sections.items() if BLOCK.search(body)}


def put(text: str, file: Path) -> None:
    """Write the lines of a block to the end of a file, or in place of its row."""
    if not file.exists():
        file.write_text(text)
        return
    old = file.read_text()
    if file.suffix == ".h":
        head, _, tail = old.rpartition("#endif")
        file.write_text(f"{head}{text}\n#endif{tail}")
        return
    # A later recipe replaces the row of an earlier one.
    name = text.split(" = ")[0]
    old = re.sub(rf"^{name} = .*\n", "", old, flags=re.MULTILINE)
    file.write_text(f"{old.rstrip()}\n{text}")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copy")
    for name in PACKAGES:
        skip = shutil.ignore_patterns("__pycache__", ".pytest_cache", "build")
        shutil.copytree(ROOT / name, folder / name, ignore=skip)
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


@pytest.mark.slow
@pytest.mark.cc
def test_the_recipes_work_one_after_the_other(copy: Path) -> None:
    assert len(recipes()) == 3
    paths = [copy, copy / "partitioner", copy / "runtime", copy / "devices"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    for title, body in recipes().items():
        for block in BLOCK.finditer(body):
            # The file is the one that was named last.
            named = FILE.findall(body[: block.start()])
            put(block[2], copy / named[-1])
        (command,) = COMMAND.findall(body)
        words = [sys.executable, "-m", "pytest", "-q", "-n", "0", *shlex.split(command)]
        done = subprocess.run(
            words, cwd=copy, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, f"{title}: {done.stdout[-3000:]}"
