"""What the adapters of other programs may cost: lines, and nothing of the core."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "packages" / "integrations" / "src"
FILES = sorted(file for file in SOURCE.rglob("*.py"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_of_an_adapter_is_short(file: Path) -> None:
    assert len(file.read_text().splitlines()) < 200


def test_there_are_adapters() -> None:
    assert len(FILES) >= 8
