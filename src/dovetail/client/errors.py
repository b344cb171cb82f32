"""Why a service refuses."""

from __future__ import annotations

from dovetail.errors import DovetailError


class NotFound(DovetailError):  # noqa: N818 - reads as what it is
    """No job is meant by what was written."""

    exit_status = 2


class Forbidden(DovetailError):  # noqa: N818 - reads as what it is
    """This person may not do that."""

    exit_status = 2


class Full(DovetailError):  # noqa: N818 - reads as what it is
    """It cannot be put on record now."""

    exit_status = 1
