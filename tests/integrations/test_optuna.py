"""Optuna's trials as calls of an executor: a killed worker costs its own trial, and none is made twice."""

from __future__ import annotations

import os
import signal
from concurrent.futures import wait
from pathlib import Path
from typing import Any

import pytest

import dovetail
from dovetail.pools.pool import WorkerLost

optuna = pytest.importorskip("optuna", reason="it is in the environment of `make integrations`")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


def test_no_trial_is_made_twice_after_a_kill(tmp_path: Path) -> None:
    journal = str(tmp_path / "study.log")

    def study() -> Any:
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        storage = JournalStorage(JournalFileBackend(journal))
        return optuna.create_study(storage=storage, study_name="x", load_if_exists=True)

    def one_trial(fatal: bool) -> int:
        known = study()
        trial = known.ask()
        with open(tmp_path / "made", "a") as made:
            made.write(f"{trial.number}\n")
        if fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        known.tell(trial, trial.suggest_float("x", -1, 1) ** 2)
        return int(trial.number)

    study()
    with dovetail.Executor(2, local=True) as executor:
        futures = [executor.submit(one_trial, number == 3) for number in range(8)]
        wait(futures, 250)
        lost = [future for future in futures if future.exception() is not None]
        assert [type(future.exception()) for future in lost] == [WorkerLost]
        numbers = [future.result() for future in futures if future not in lost]
    made = [int(line) for line in (tmp_path / "made").read_text().split()]
    assert sorted(made) == list(range(8)), "each trial was made once"
    trials = study().get_trials()
    states = [trial.state for trial in trials]
    assert len(trials) == 8
    assert states.count(optuna.trial.TrialState.COMPLETE) == 7
    assert {trial.number for trial in trials if trial.value is not None} == set(numbers)
