"""The command before its modules are loaded."""

from __future__ import annotations

import sys

import pytest

from dovetail.start import main


class Interrupting:
    """An importer during whose work somebody presses Ctrl-C."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "dovetail.cli.main":
            raise KeyboardInterrupt


def test_an_interrupt_while_modules_are_loaded_is_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "dovetail.cli.main", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 130
