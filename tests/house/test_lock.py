"""requirements.lock pins what pyproject.toml asks for, and names nobody's index."""

from __future__ import annotations

import re
import tomllib

from tests.conftest import ROOT


def test_the_lock_has_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    wanted = [*project["dependencies"], *extras["dev"], *extras["docs"]]
    lines = [
        line
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if not line.startswith("#")
    ]
    assert [
        x
        for x in lines
        if not re.fullmatch(r"[a-zA-Z0-9._-]+==[^ /]+ --hash=sha256:[0-9a-f]{64}", x)
    ] == []
    locked = {_plain(line.split("==")[0]) for line in lines}
    assert {_plain(re.split(r"[<>=\[; ]", d)[0]) for d in wanted} - locked == set(), (
        "run make lock"
    )


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
