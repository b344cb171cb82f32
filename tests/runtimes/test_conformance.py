"""Every model keeps what the conformance suite states."""

from __future__ import annotations

import pytest

from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import RuntimeModel
from dovetail.runtimes import MODELS, make_model
from dovetail.testing.conformance import RuntimeModelConformance


class TestModels(RuntimeModelConformance):
    name = ""

    @pytest.fixture(autouse=True, params=list(MODELS))
    def choose(self, request: pytest.FixtureRequest) -> None:
        self.name = request.param

    def make(self, history: MemoryHistory) -> RuntimeModel:
        return make_model(self.name, history)
