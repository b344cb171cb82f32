"""A pytest plugin: what joblib's tests call loky is Dovetail's backend."""

from __future__ import annotations

from joblib import register_parallel_backend

import dovetail_integrations.joblib as ours

register_parallel_backend("loky", ours.DovetailBackend)
