"""What wheels and source archives hold beside the package: man pages, completions, the unit of systemd.

Man pages and completions are there when ``tools/share.py build/share`` has made them (``make dist``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class Share(BuildHookInterface[Any]):
    """Puts ``share`` and ``build/share`` where systems look for them."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel or a source archive is built."""
        made = Path(self.root) / "build" / "share"
        if not made.is_dir() or version == "editable":
            return
        if self.target_name == "sdist":
            build_data["force_include"][str(made)] = "build/share"
        else:
            build_data["shared_data"][str(made)] = "share"
