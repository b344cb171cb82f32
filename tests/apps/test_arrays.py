from __future__ import annotations

import sys

import pytest

from dovetail.errors import InputError
from dovetail_lab.apps.devices import open_device


def test_absent_cuda_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    for library in ("cupy", "torch"):
        monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(InputError, match="CuPy and PyTorch are not installed"):
        open_device("cuda")


def test_absent_compatibility_layer_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "array_api_compat.numpy", None)
    with pytest.raises(InputError, match="needs array_api_compat, which is not installed"):
        open_device("numpy")
