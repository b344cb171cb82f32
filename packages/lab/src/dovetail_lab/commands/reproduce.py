"""``dovetail reproduce``: the studies that are registered, each imported when it runs."""

from __future__ import annotations

from collections.abc import Mapping

import typer

from dovetail.cli.lazy import LazyGroup, Target, registered_targets


class _Studies(LazyGroup):
    """One command for each entry point of ``dovetail.studies``."""

    @classmethod
    def command_targets(cls) -> Mapping[str, Target]:
        """The studies by name."""
        return registered_targets("dovetail.studies")


reproduce = typer.Typer(
    help="Set the papers' figures beside ours.", no_args_is_help=True, cls=_Studies, rich_markup_mode=None
)


@reproduce.callback()
def _group() -> None:
    """Set the papers' figures beside ours."""
