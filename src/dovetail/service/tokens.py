"""Tokens: who may come in over the network. What is kept is a digest of each, in a file of mode 0600."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from dataclasses import asdict
from pathlib import Path

from dovetail.client.folder import read_form
from dovetail.engine.journal.checked import DAMAGED, check_fields
from dovetail.errors import InputError
from dovetail.files.sentences import show_value
from dovetail.files.writing import replace_file
from dovetail.records import dataclass

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True)
class Token:
    """The name that its holder has here. An ``admin`` may do everything with everybody's jobs."""

    name: str
    digest: str
    created: float
    admin: bool = False


class Tokens:
    """The tokens of one service; the file is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen: tuple[int, int] | None = None
        self._tokens: dict[str, Token] = {}

    def add(self, name: str, *, admin: bool = False) -> str:
        """A new token for this name, in place of an older one, to be read only now. Raises `InputError`."""
        if not _NAME.fullmatch(name):
            raise InputError(
                f"found the name {name!r}, expected letters, digits, '_', '.', '-'", where="token"
            )
        secret = f"dt_{secrets.token_urlsafe(32)}"
        self.all()
        self._tokens[name] = Token(name, _hash_secret(secret), time.time(), admin)
        self._write_file()
        return secret

    def remove_token(self, name: str) -> None:
        """Raises `InputError` where there is no such token."""
        if name not in self.all():
            raise InputError(f"found no token of {name!r}", where="token")
        del self._tokens[name]
        self._write_file()

    def all(self) -> dict[str, Token]:
        """All of them, by name. Raises `InputError` where the file is damaged."""
        try:
            stat = os.stat(self._path)
        except FileNotFoundError:
            self._seen, self._tokens = None, {}
            return self._tokens
        if self._seen != (stat.st_mtime_ns, stat.st_ino):
            try:
                self._tokens = {one["name"]: check_fields(Token(**one)) for one in read_form(self._path)}
            except (OSError, *DAMAGED) as error:
                raise InputError(
                    f"is damaged: {show_value(str(error))}; without this file no token is valid, and "
                    "'dovetail token add NAME' makes new ones",
                    where=str(self._path),
                ) from error
            self._seen = stat.st_mtime_ns, stat.st_ino
        return self._tokens

    def find_token(self, secret: str) -> Token | None:
        """Whose token that is; takes the same time whichever it is, and if it is none."""
        digest = _hash_secret(secret)
        found = None
        for token in self.all().values():
            if secrets.compare_digest(token.digest, digest):
                found = token
        return found

    def with_digest(self, digest: str) -> Token | None:
        """The token with this digest, as it stands now; ``None`` where it was removed or replaced."""
        return next((token for token in self.all().values() if token.digest == digest), None)

    def _write_file(self) -> None:
        try:
            replace_file(self._path, json.dumps([asdict(one) for one in self._tokens.values()]).encode())
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror}", where=str(self._path)) from error
        self._seen = None


def _hash_secret(secret: str) -> str:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
