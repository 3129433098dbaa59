"""Divides help into sections: `--help` shows usual options, `--help-all` every one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click
from edgec_devices.options import Section

from edgec.cli.output import echo


class SectionedOption(click.Option):
    """An option that `--help` shows in a section; without one, only `--help-all` does."""

    def __init__(
        self, *args: Any, section: Section | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def option(
    *names: str, section: Section | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], Any]:
    """Return a `click.option` for a SectionedCommand."""
    return click.option(*names, cls=SectionedOption, section=section, **attributes)


class SectionedCommand(click.Command):
    """A command whose `--help` has sections, and whose `--help-all` has all options."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the command's own parameters and `--help-all`.

        Like `--help`, it is answered before anything else.
        """
        return [*super().get_params(ctx), _help_all_option()]

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write a section for each title, in the order in which the options name them."""
        sections: dict[Section, list[tuple[str, str]]] = {}
        rest: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            # Newer versions of click have records of positional arguments too, which
            # the usage line shows already; hidden options have none.
            if record is None or not isinstance(parameter, click.Option):
                continue
            title = getattr(parameter, "section", None)
            if title is None:
                rest.append(record)
            else:
                sections.setdefault(title, []).append(record)

        # Options of a base class are declared after those of its subclass.
        order = list(Section)
        for title in sorted(sections, key=order.index):
            records = sections[title]
            with formatter.section(title):
                formatter.write_dl(records)
        if ctx.meta.get(_ALL):
            with formatter.section("More options"):
                formatter.write_dl(rest)
        else:
            formatter.write_paragraph()
            formatter.write_text(
                f"{len(rest)} more options: {ctx.command_path} --help-all"
            )


_ALL = "edgec.cli.sections.all"
"""Key in the metadata of a click context: whether to show every option."""


def _help_all_option() -> click.Option:
    """Return the option --help-all."""

    def show(ctx: click.Context, option: click.Parameter, value: bool) -> None:
        # Shell completion parses without running anything.
        if value and not ctx.resilient_parsing:
            ctx.meta[_ALL] = True
            echo(ctx.get_help())
            ctx.exit()

    return click.Option(
        ["--help-all"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=show,
        help="Show every option and exit.",
    )
