"""What the tests of the adapters share: a service that jobs find by their environment."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from services import ANEW, Serving

collect_ignore = ["suites"]
"""Other projects' own tests, which `make integrations` runs."""


@pytest.fixture(scope="module")
def around(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """A service; ``$DOVETAIL_SERVICE`` names it while the module's tests run."""
    found = Serving(tmp_path_factory.mktemp("service"))
    found.program = ANEW
    found.start().close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[1] / "support"))  # jobs import the tests
        for name in ("XDG_STATE_HOME", "DOVETAIL_SERVICE"):
            patch.setenv(name, found.environment[name])
        yield found
    found.stop()
