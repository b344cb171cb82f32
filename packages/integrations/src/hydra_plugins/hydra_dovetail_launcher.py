"""Hydra's launcher ``dovetail``, where Hydra looks for plugins."""

# No annotations in the future: Hydra loads this file in a way in which dataclasses cannot look them up.
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


@dataclass
class DovetailLauncherConf:
    """What ``hydra.launcher`` has: requests of each job, as `dovetail submit` has them."""

    _target_: str = "hydra_plugins.hydra_dovetail_launcher.DovetailLauncher"
    service: str | None = None
    cpus: int = 1
    gpus: float | None = None
    memory: str | None = None
    gpu_memory: str | None = None
    walltime: str | None = None
    priority: float | None = None
    retries: int | None = None
    partition: str | None = None
    name: str | None = None


class DovetailLauncher(Launcher):  # type: ignore[misc]
    """Jobs of a sweep as jobs of a service."""

    def __init__(self, service: str | None = None, **options: Any) -> None:
        self._service = service
        self._options = {key: value for key, value in options.items() if value is not None}
        self._given: tuple[HydraContext, DictConfig, TaskFunction] | None = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """What the sweep runs."""
        self._given = hydra_context, config, task_function

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit all, and wait; interrupted, cancel those that have not ended. Raises `NoService`."""
        from dovetail_integrations.hydra import launch

        assert self._given is not None
        return launch(self._service, self._options, *self._given, job_overrides, initial_job_idx)


ConfigStore.instance().store(
    group="hydra/launcher", name="dovetail", node=DovetailLauncherConf, provider="dovetail"
)
