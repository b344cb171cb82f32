"""Dovetail's backend with the name that joblib's tests expect, and joblib's own default of one job."""

from __future__ import annotations

from joblib import register_parallel_backend

from dovetail_integrations.joblib import DovetailBackend


class LokyBackend(DovetailBackend):
    default_n_jobs = 1


register_parallel_backend("loky", LokyBackend)
