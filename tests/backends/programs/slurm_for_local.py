"""A plugin of pytest: submitit's tests of its local executor, as they are, with the one for Slurm instead."""

import pytest
from submitit.local import local
from submitit.slurm.slurm import SlurmExecutor


class OnSlurm(SlurmExecutor):
    """The executor for Slurm, which takes the parameters of all executors."""

    def update_parameters(self, **parameters):
        super().update_parameters(**self._convert_parameters(parameters))


@pytest.fixture(autouse=True)
def on_slurm(monkeypatch):
    monkeypatch.setattr(local, "LocalExecutor", OnSlurm)
