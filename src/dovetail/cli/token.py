"""``dovetail token``: who may come in over the network."""

from __future__ import annotations

import time
from pathlib import Path

from dovetail.cli import options as opt
from dovetail.cli.serve import folder_of
from dovetail.cli.service import print_json, show_rows
from dovetail.errors import InputError
from dovetail.service.tokens import Tokens

token_app = opt.command_group("Manage access over the network.")


def _open_tokens(folder: Path | None) -> Tokens:
    place = folder_of(folder)
    try:
        place.make_private()
    except OSError as error:
        raise InputError(f"{place.path}: cannot be used: {error.strerror}") from error
    return Tokens(place.tokens_path)


@opt.takes_options("token add", token_app)
def add(name: str, admin: bool, folder: Path | None) -> None:
    """Make a token, in place of an older one of that name; it is shown now, and never again."""
    print(_open_tokens(folder).add(name, admin=admin))


@opt.takes_options("token remove", token_app)
def remove(name: str, folder: Path | None) -> None:
    """Take a token back; its open sessions end at once."""
    _open_tokens(folder).remove_token(name)


@opt.takes_options("token list", token_app)
def show(folder: Path | None, as_json: bool) -> None:
    """List tokens: names, when they were made, and whether they may do everything."""
    tokens = _open_tokens(folder).all().values()
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
