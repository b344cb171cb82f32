"""Whether the ledger's file is still there."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dovetail.running.ledger import Ledger


def test_a_folder_that_cannot_be_looked_into_is_not_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(tmp_path / "ledger.db", durable=True) as ledger:
        assert ledger.is_there
        stat = os.stat

        def refused(path: Any, **more: Any) -> os.stat_result:
            if path == ledger.path:
                raise PermissionError(13, "Permission denied")
            return stat(path, **more)

        monkeypatch.setattr(os, "stat", refused)
        assert ledger.is_there
        monkeypatch.undo()
        ledger.path.unlink()
        assert not ledger.is_there
