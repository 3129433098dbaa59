"""One option for a device in every verb, and what it takes."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from edgec.cli.main import cli
from edgec.errors import EdgecError

VERBS = ("run", "bench", "doctor", "flash", "rollback", "status", "trust")
NEEDED = {
    "run": ["m.edgec", "--input", "i.npy", "--output", "o.npz"],
    "bench": ["m.edgec"],
    "flash": ["m.edgec"],
    "trust": ["k.pub"],
}


def invoke(*words: str) -> BaseException | None:
    """The verb's error."""
    return CliRunner().invoke(cli, words).exception


@pytest.mark.parametrize("verb", VERBS)
def test_help_shows_on(verb: str) -> None:
    shown = CliRunner().invoke(cli, [verb, "--help"]).output
    assert "--on DEVICE" in shown
    assert "--timeout" in shown


@pytest.mark.parametrize("verb", VERBS)
def test_a_name_of_edgec_toml_is_taken_by_every_verb(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its URL is what is refused, so that nothing is reached."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "edgec.toml").write_text('[devices]\nattic = "ssh://pi@attic/x"\n')
    error = invoke(verb, *NEEDED.get(verb, []), "--on", "attic")
    assert isinstance(error, EdgecError), error
    assert "this names no host" in error.what
    assert "[devices] attic" in str(error.at)
    misspelled = invoke(verb, *NEEDED.get(verb, []), "--on", "atic")
    assert 'did you mean "attic"' in str(misspelled)


def test_a_missing_device_is_asked_for_by_the_name_that_is_shown() -> None:
    with pytest.raises(click.UsageError) as e:
        cli.main(["status"], standalone_mode=False)
    assert "'--on'" in e.value.format_message()


def test_several_devices_are_given_in_one_word_or_in_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = invoke("status", "--on", "local:,locl:", "--on", "local:")
    assert 'did you mean "local"' in str(error)
