"""Writes llms.txt (https://llmstxt.org) and docs/for-agents.md, for programs that read
instead of people, from the sources of the manual: the order of pages in mkdocs.yml, the
first sentence of each page, and the declared verbs, options and errors.

    python tools/llms.py
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from edgec_runtime import errors

import edgec
from edgec.options.declaration import declared, flags_of

ROOT = Path(__file__).resolve().parents[1]
LLMS = ROOT / "llms.txt"
AGENTS = ROOT / "docs" / "for-agents.md"
_RULES = """\
- No verb waits for an answer unless its input is a terminal: `webcam --demo` asks before it
  downloads, and `--yes` answers.
- `--json` prints one JSON object on standard output; `bench`, `diff` and `eval` take a FILE for
  it. Progress and warnings go to standard error.
- An error is up to three lines on standard error: `error:` what failed with its value, `at:` the
  node or file, `hint:` one action.
- An estimate is an interval (`est. 8.2 to 10.4 ms`), and a budget is held against its upper end.
  Times that were measured on a board have no `est.`.
- In Python each verb is a function of `edgec` with the same options. It raises
  `edgec.errors.EdgecError` with `what`, `at`, `hint` and `exit_code`.
"""


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml, in which plugins may have tags of their own."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: None)


def llms() -> str:
    """Return llms.txt: what edgec is, and all pages of the manual with their beginnings."""
    site = yaml.load((ROOT / "mkdocs.yml").read_text(), _Loader)
    lines = [f"# {site['site_name']}", "", f"> {site['site_description']}", ""]
    lines += _pages("Start", [page for page in site["nav"] if _is_page(page)])
    for entry in site["nav"]:
        if not _is_page(entry):
            ((title, pages),) = entry.items()
            lines += _pages(title, pages)
    return "\n".join(lines)


def _is_page(entry: dict[str, Any]) -> bool:
    return all(isinstance(value, str) for value in entry.values())


def _pages(title: str, pages: list[dict[str, str]]) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    for page in pages:
        ((name, path),) = page.items()
        yield f"- [{name}](docs/{path}): {first_sentence(ROOT / 'docs' / path)}"
    yield ""


def first_sentence(page: Path) -> str:
    """Return the first sentence of a page's first paragraph, links as their texts."""
    paragraphs = re.split(r"\n\s*\n", page.read_text())
    at = next(i for i, p in enumerate(paragraphs) if p[0].isalpha() or p[0] in "*[`")
    text = " ".join(paragraphs[at].split())
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    command = re.match(r" +\$ (edgec \w+)", paragraphs[at - 1])
    if command and text[0].islower():
        # the sentence goes on after an example
        text = f"`{command[1]}` {text}"
    return re.split(r"(?<=[.:]) ", text)[0].rstrip(":")


def for_agents() -> str:
    """Return docs/for-agents.md: rules, exit codes, and each verb in a line."""
    lines = [
        "# For agents",
        "",
        "What a program needs that calls edgec for somebody. `tools/llms.py` writes this page from",
        "the declared verbs and errors; the [Python API](api.md) says what each option does.",
        "",
        _RULES,
        "| exit code | meaning |",
        "| --- | --- |",
        "| 0 | done; every budget holds |",
        *_exit_codes(),
        "",
        "| verb | options | what it does |",
        "| --- | --- | --- |",
        *map(_verb, (name for name in edgec.__all__ if name != "__version__")),
        "",
    ]
    return "\n".join(lines)


def _exit_codes() -> Iterator[str]:
    kinds: dict[int, list[str]] = {}
    # What else is imported may have subclasses of its own.
    kinds_here = (errors.EdgecError, *errors.EdgecError.__subclasses__())
    for error in kinds_here:
        if error.__module__ != errors.__name__:
            continue
        text = (inspect.getdoc(error) or "").rstrip(".")
        # A verb's own errors are there only after its module was imported.
        if error.__module__ != errors.EdgecError.__module__:
            continue
        if error is not errors.EdgecError:
            kinds.setdefault(error.exit_code, []).append(f"{error.__name__}: {text}")
    for code, texts in sorted(kinds.items()):
        also = "a budget does not hold; " if code == 1 else ""
        yield f"| {code} | {also}{'; '.join(texts)} |"
    yield "| 70 | a bug of edgec; `at:` names a file for its report |"
    yield "| 130 | Ctrl-C stopped it |"


def _verb(name: str) -> str:
    verb = getattr(edgec, name)
    options = declared(verb.options)
    flags = [
        flags_of(one)[-1]
        for one in options
        if not one.text.is_argument and not one.text.python_only
    ]
    arguments = " ".join(
        one.text.metavar or one.name.upper() for one in options if one.text.is_argument
    )
    summary = " ".join(
        (inspect.getdoc(inspect.unwrap(verb)) or "").split("\n\n")[0].split()
    )
    shown = " ".join(f"`{flag}`" for flag in flags)
    return f"| `edgec {' '.join((name, arguments)).strip()}` | {shown} | {summary} |".replace(
        "[", "\\["
    )


def main() -> None:
    """Write both files."""
    LLMS.write_text(llms())
    AGENTS.write_text(for_agents())


if __name__ == "__main__":
    main()
