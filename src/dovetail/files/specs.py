"""Names with options, as they stand on the command line: ``NAME?option=value&option=value``."""

from __future__ import annotations

from urllib.parse import unquote

from dovetail.errors import InputError
from dovetail.files.sentences import file_name, show_value


def split_spec(spec: str) -> tuple[str, dict[str, str]]:
    """Name and options, in their order; raises `InputError` for no ``option=value``, or one given twice.

    >>> split_spec("fms?score=area&beta=2")
    ('fms', {'score': 'area', 'beta': '2'})
    """
    name, mark, query = spec.partition("?")
    options: dict[str, str] = {}
    if not mark:
        return name, options
    where = file_name(spec)
    if not query:
        raise InputError("found nothing after '?', expected option=value", where=where)
    for pair in query.split("&"):
        key, equals, value = (unquote(part) for part in pair.partition("="))
        if not equals or not key:
            raise InputError(
                f"found {show_value(pair)}, expected option=value pairs joined by '&'", where=where
            )
        if key in options:
            raise InputError(f"found the option {show_value(key)} twice, expected it once", where=where)
        options[key] = value
    return name, options
