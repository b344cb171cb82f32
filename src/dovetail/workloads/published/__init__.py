"""Workloads that papers publish: ``published:NAME?option=value&…``.

Each module holds one paper's table and the rules by which its experiments draw from it.
"""

from __future__ import annotations

from dovetail.workloads.published.registry import describe_published, load_published, takes_seed

__all__ = ["describe_published", "load_published", "takes_seed"]
