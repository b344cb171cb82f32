"""Models by name."""

from __future__ import annotations

import pytest

from dovetail.errors import InputError
from dovetail.history import MemoryHistory
from dovetail.runtimes import DEFAULT_MODEL, MODELS, make_model


def test_every_name_makes_a_model() -> None:
    assert DEFAULT_MODEL in MODELS
    for name in MODELS:
        assert make_model(name, MemoryHistory()).version == 0


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"--model: found 'guess', expected one of mean, least-squares"):
        make_model("guess", MemoryHistory())
