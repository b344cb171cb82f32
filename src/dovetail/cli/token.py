"""``dovetail token``: who may come in over the network."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from dovetail.cli import options as opt
from dovetail.cli.serve import Folder, folder_of
from dovetail.cli.service import print_json, show_rows
from dovetail.errors import InputError
from dovetail.service.tokens import Tokens

__all__ = ["token_app"]

token_app = typer.Typer(
    no_args_is_help=True, help="Say who may come in over the network.", rich_markup_mode=None
)

Name = Annotated[str, typer.Argument(metavar="NAME", help="The user that its holder is to the service.")]


def _tokens(folder: Path | None) -> Tokens:
    place = folder_of(folder)
    try:
        place.make()
    except OSError as error:
        raise InputError(f"{place.path}: cannot be used: {error.strerror}") from error
    return Tokens(place.tokens)


@token_app.command()
def add(
    name: Name,
    admin: Annotated[
        bool, typer.Option("--admin", help="May do everything with everybody's jobs, and end the service.")
    ] = False,
    folder: Folder = None,
) -> None:
    """Make a token, in place of an older one of that name; it is shown now, and never again."""
    print(_tokens(folder).add(name, admin=admin))


@token_app.command()
def remove(name: Name, folder: Folder = None) -> None:
    """Take a token back; who is in through it is out at once."""
    _tokens(folder).remove(name)


@token_app.command("list")
def show(folder: Folder = None, as_json: opt.Json = False) -> None:
    """List tokens: names, when they were made, and whether they may do everything."""
    tokens = _tokens(folder).all().values()
    if as_json:
        print_json([{"name": one.name, "created": one.created, "admin": one.admin} for one in tokens])
        return
    rows = [
        {
            "name": one.name,
            "made": time.strftime("%Y-%m-%d %H:%M", time.localtime(one.created)),
            "may": "everything" if one.admin else "their own jobs",
        }
        for one in tokens
    ]
    show_rows(("name", "made", "may"), rows)
