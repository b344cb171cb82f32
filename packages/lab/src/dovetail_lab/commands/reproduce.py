"""``dovetail reproduce``: the studies that are registered, each imported when it runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import typer

from dovetail.cli.lazy import LazyGroup, Target, registered_targets
from dovetail_lab.commands.expected import is_watched, keep_duration, show_expected

_WATCHED = "dovetail_lab.watched"
"""The words of a study whose progress is shown."""


class _Studies(LazyGroup):
    """One command for each entry point of ``dovetail.studies``."""

    @classmethod
    def command_targets(cls) -> Mapping[str, Target]:
        """The studies by name."""
        return registered_targets("dovetail.studies")

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """The study; on a terminal, how long it took the last time."""
        found = super().resolve_command(ctx, args)
        if not ctx.resilient_parsing and is_watched(args):  # else only completed
            show_expected(args)
            ctx.meta[_WATCHED] = list(args)
        return found

    def invoke(self, ctx: Any) -> Any:
        """Run the study, and keep how long it took for the next time."""
        began = time.monotonic()
        found = super().invoke(ctx)
        if _WATCHED in ctx.meta:
            keep_duration(ctx.meta[_WATCHED], time.monotonic() - began)
        return found


reproduce = typer.Typer(
    help="Reproduce the papers' figures.", no_args_is_help=True, cls=_Studies, rich_markup_mode=None
)


@reproduce.callback()
def _group() -> None:
    """Reproduce the papers' figures."""
