"""Help in sections: `--help` shows the options that most people need, `--help-all`
every one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from edgec.cli.echo import echo


class SectionedOption(click.Option):
    """An option that `--help` shows under the title `section`; without one only
    `--help-all` shows it.
    """

    def __init__(
        self, *args: Any, section: str | None = None, **attributes: Any
    ) -> None:
        super().__init__(*args, **attributes)
        self.section = section


def option(
    *names: str, section: str | None = None, **attributes: Any
) -> Callable[[Callable[..., Any]], Any]:
    """`click.option` for a SectionedCommand."""
    return click.option(*names, cls=SectionedOption, section=section, **attributes)


class SectionedCommand(click.Command):
    """A command whose `--help` is short and grouped, and whose `--help-all` has the
    remaining options too.
    """

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The command's own parameters and `--help-all`, which is answered before
        anything else, as `--help` is.
        """
        return [*super().get_params(ctx), _help_all_option()]

    def format_options(
        self, ctx: click.Context, formatter: click.HelpFormatter
    ) -> None:
        """Write a section for each title, in the order in which the options name them."""
        sections: dict[str, list[tuple[str, str]]] = {}
        rest: list[tuple[str, str]] = []
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is None:
                continue
            title = getattr(parameter, "section", None)
            (rest if title is None else sections.setdefault(title, [])).append(record)
        for title, records in sections.items():
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
"""The key of a click context's notes that says whether every option is to be shown."""


def _help_all_option() -> click.Option:
    def show(ctx: click.Context, option: click.Parameter, value: bool) -> None:
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
