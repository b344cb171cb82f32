"""The dashboard for Grafana asks for figures, labels and states that the service has, and for all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path

from dovetail.service.metrics import Figures, format_exposition

DASHBOARD = Path(__file__).resolve().parents[2] / "share" / "grafana" / "dovetail.json"
INFO = {
    "jobs": {"running": 1, "waiting": 2, "held": 0},
    "cpus": 8, "cpus_used": 3, "devices": 1, "since": 1e9, "blocked": None, "longest_instant": 0.1,
}  # fmt: skip


def asked_for() -> set[tuple[str, frozenset[str]]]:
    """Each figure that a panel asks for, with the labels that it names."""
    board = json.loads(DASHBOARD.read_text())
    texts = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return {
        (name, frozenset(re.findall(r"(\w+)\s*=~?", labels or "")))
        for text in texts
        for name, labels in re.findall(r"(dovetail_\w+)(?:\{([^}]*)\})?", text)
    }


def test_each_panel_asks_for_what_there_is() -> None:
    text = format_exposition(INFO, Figures())
    there = set(re.findall(r"^(dovetail_\w+)", text, re.MULTILINE))
    labels = {name: set(re.findall(rf"^{name}{{(\w+)=", text, re.MULTILINE)) for name in there}
    for name, named in asked_for():
        assert name in there, f"{name}: no such figure"
        assert named - {"instance"} <= labels[name], f"{name}: no such label among {labels[name]}"
    kinds = set(re.findall(r"^# TYPE (dovetail_\w+)", text, re.MULTILINE))
    shown = {name.removesuffix("_bucket") for name, _ in asked_for()}
    assert kinds <= shown, "a figure that no panel shows"
    states = {"running", "waiting", "held"}
    asked = set(re.findall(r'dovetail_jobs\{state=\\?"(\w+)', DASHBOARD.read_text()))
    assert asked <= states
    assert asked


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        cells = {(at["x"] + x, at["y"] + y) for x in range(at["w"]) for y in range(at["h"])}
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
