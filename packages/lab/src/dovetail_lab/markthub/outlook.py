"""What borrowing leads to, and whether going home pays: by predicted times and a rate model's costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.interfaces import PricesBorrowing, View
from dovetail.model import (
    Allocation,
    Choice,
    Communication,
    Job,
    Migrate,
    Placed,
    Request,
    Seconds,
    Start,
    bit_indices,
    fastest_choice,
)
from dovetail.model import remote_times as times
from dovetail.model.fitting import cpus_on
from dovetail_lab.markthub.borrowing_arrays import (
    ARRIVED,
    FIRST,
    LAST,
    RUNNING,
    SPARES,
    Borrowing,
    Machine,
    Row,
    State,
    costs_of,
    machine_of,
    new_state,
    row_of,
    rows_to_columns,
)

SILENT = Communication(0.0)
"""Of a job without a declared communication: nothing."""


@dataclass(slots=True)
class _Runs:
    """A running job as it will be after what has been decided in this instant."""

    job: Job
    allocation: Allocation
    before: Allocation | None  # ``None``: it starts now
    row: Row


class BorrowingState:
    """One instant, as a rate model of borrowed GPUs and the predictions see it."""

    def __init__(self, view: View, looks: int, local: int) -> None:
        self._view = view
        self._looks = looks
        self._local = local
        forecast = view.forecast
        rates: object = None if forecast is None else forecast.rates
        self._forecast = forecast
        self._rates = rates if isinstance(rates, PricesBorrowing) else None
        self._counted: dict[int, int] | None = None

    # ---------------------------------------------------------------- going home

    def pays_to_move(self, placed: Placed) -> bool:
        """Whether having all its GPUs at home saves a job more time than the longest stall costs.

        With a network to itself then, so that it is never too careful.
        """
        rates, communication = self._rates, placed.job.communication
        expected = None if self._forecast is None else self._forecast.expected(placed.job.id)
        # Without prices or predictions it moves as plain MRQ does.
        if rates is None or communication is None or expected is None:
            return True
        took, home = rates.standing(placed.job.id)
        costs, allocation = rates.constants, placed.allocation
        worst = 0.0
        for n in allocation.nodes:
            node = self._view.cluster.nodes[n]
            at_home = times.local_gpu(costs, communication, node.gpu_bandwidth or costs.gpu_bandwidth)
            came = home.get(n, 0) + sum(donor.client == n for donor in allocation.donors)
            # With two or more GPUs at home a helper process is needed (Equation 12's term).
            if rates.processes == "node" and came >= 2:
                at_home += times.after_helper(costs, communication)
            worst = max(worst, at_home)
        network = times.network_seconds(costs, communication, costs.network_bandwidth)
        healed = network + worst + communication.other
        left = expected.left - max(0.0, self._view.now - expected.since) * expected.rate
        # What is left now, by the rate since the forecast was made.
        done = 1.0 - max(0.0, left) / expected.total
        stalled = self._longest_stall(communication, allocation, None, done)
        return (1.0 - done) * (took - healed) > stalled

    def _longest_stall(
        self, communication: Communication, before: Allocation, after: Allocation | None, done: float
    ) -> Seconds:
        """The longest stall of the GPUs that move, by the processes that there are before anything moves."""
        assert self._rates is not None
        # A GPU that stays borrowed does not stall the job.
        staying = set() if after is None else {(donor.donor, donor.device) for donor in after.donors}
        return max(
            (
                times.stall_seconds(
                    self._rates.constants,
                    communication,
                    done,
                    min(self._network_share(donor.client), self._network_share(donor.donor)),
                )
                for donor in before.donors
                if (donor.donor, donor.device) not in staying
            ),
            default=0.0,
        )

    def _network_share(self, n: int) -> float:
        """Equation 2."""
        assert self._rates is not None
        # Counted once an instant: every question about a share needs all nodes.
        if self._counted is None:
            running = self._view.running.values()
            self._counted = self._processes_by_node((placed.job, placed.allocation) for placed in running)
        full = self._view.cluster.nodes[n].network_bandwidth or self._rates.constants.network_bandwidth
        return full / self._counted[n]

    def _processes_by_node(self, running: Iterable[tuple[Job, Allocation]]) -> dict[int, int]:
        """Processes and daemons of each node; jobs that do not communicate have none."""
        assert self._rates is not None
        per_gpu = self._rates.processes == "gpu"
        found: dict[int, int] = {}
        for job, allocation in running:
            if job.communication is None:
                continue
            for part in allocation.parts:
                for n in bit_indices(part.nodes):
                    found[n] = found.get(n, 0) + (len(part.devices) if per_gpu else 1)
            for donor in allocation.donors:
                found[donor.donor] = found.get(donor.donor, 0) + 1
                if per_gpu:
                    found[donor.client] = found.get(donor.client, 0) + 1
        return found

    # ---------------------------------------------------------------- borrowing

    def is_worth_borrowing(
        self, home: Sequence[Migrate], started: Sequence[Start], waiting: Sequence[Job]
    ) -> bool:
        """Whether the head of ``waiting`` is to borrow now, after these moves and starts.

        O(running jobs · nodes) and four roll-outs over what runs and waits.
        """
        from dovetail_lab.markthub.borrowing import worth_borrowing  # loads a compiler

        rates, view = self._rates, self._view
        # Without prices there is nothing to weigh, so it borrows as MRQ does.
        if rates is None:
            return True
        runs = [*self._running_jobs(home), *self._started_jobs(started)]
        ahead = [self._job_row(job, fastest_choice(view, job)) for job in waiting[: self._looks]]
        request = fastest_choice(view, waiting[0]).request
        jobs = rows_to_columns([*(one.row for one in runs), *ahead])
        machine = machine_of(view.cluster, rates.constants, request.devices[0][0], request.models)
        state, scratch = new_state(jobs, machine), new_state(jobs, machine)
        self._fill_state(state, machine, runs, len(ahead))
        how = Borrowing(
            True, True, self._local, 0, rates.recorded == "yes", rates.processes == "gpu", self._looks
        )
        return worth_borrowing(jobs, machine, costs_of(rates.constants), how, state, scratch, view.now)

    def _running_jobs(self, home: Sequence[Migrate]) -> list[_Runs]:
        moves = {move.job: move.allocation for move in home}
        found = []
        for job, placed in self._view.running.items():
            if job in self._view.elsewhere:
                continue
            expected = None if self._forecast is None else self._forecast.expected(job)
            base = placed.predicted if expected is None else expected.total
            row = self._priced_row(placed.job, placed.allocation.request, base or 0.0)
            after = moves.get(job, placed.allocation)
            found.append(_Runs(placed.job, after, placed.allocation, row))
        return found

    def _started_jobs(self, started: Sequence[Start]) -> list[_Runs]:
        found = []
        for start in started:
            job = self._view.job(start.job)
            implementation = job.app.implementation(start.implementation)
            row = self._job_row(job, Choice(implementation, start.allocation.request))
            found.append(_Runs(job, start.allocation, None, row))
        return found

    def _job_row(self, job: Job, choice: Choice) -> Row:
        """A job that waits, or starts now, by what is predicted of it; unknown lengths count as nothing."""
        devices = self._view.cluster.device_classes(choice.implementation.kind)
        known = [self._view.predict(job, choice.implementation, choice.request, d) for d in devices[:1]]
        expected = next((prediction.expected for prediction in known if prediction is not None), 0.0)
        return self._priced_row(job, choice.request, expected)

    def _priced_row(self, job: Job, request: Request, base: Seconds) -> Row:
        assert self._rates is not None
        communication = job.communication or SILENT
        rest = communication.other + (base - times.seconds_alone(self._rates.constants, communication))
        cpus = cpus_on(request, self._view.cluster.nodes[0].cpus, self._view.cluster.nodes[0].host_cpus)
        return row_of(job, request, communication, base, cpus)._replace(other=max(0.0, rest))

    def _fill_state(self, state: State, machine: Machine, runs: Sequence[_Runs], waiting: int) -> None:
        """What runs into the first slots; the first of the waiting jobs into the queue."""
        spare = len(state.spare) - len(runs)
        state.spare[:spare] = np.arange(len(runs), len(state.spare))[::-1]
        state.at[[RUNNING, SPARES, FIRST, LAST, ARRIVED]] = len(runs), spare, 0, waiting, waiting
        state.queue[:waiting] = np.arange(len(runs), len(runs) + waiting)
        state.order[: len(runs)] = np.arange(len(runs))
        state.touched[:] = True
        for n, count in self._processes_by_node((one.job, one.allocation) for one in runs).items():
            state.processes[n] = count
        for s, one in enumerate(runs):
            self._place_job(state, machine, s, one)
            self._set_progress(state, s, one)
        for n in range(len(state.free)):
            state.idle[n] = int(state.free[n]).bit_count()

    def _place_job(self, state: State, machine: Machine, s: int, one: _Runs) -> None:
        """What a job holds in slot ``s``, and what is free beside it."""
        came_before: Mapping[int, int] = {}
        if one.before is not None and one.job.communication is not None:
            assert self._rates is not None
            came_before = self._rates.standing(one.job.id)[1]
        k = 0
        for part in one.allocation.parts:
            mask = sum(1 << d for d in part.devices)
            for n in bit_indices(part.nodes):
                before = None if one.before is None else one.before.part_on(n)
                came = 0 if before is None else len(part.devices) - len(before.devices)
                state.held.node[s, k] = n
                state.held.gpus[s, k] = mask & int(machine.gpus[n])
                state.held.home[s, k] = came_before.get(n, 0) + came
                state.free[n] &= ~mask
                state.cpus[n] -= part.cpus
                state.memory[n] -= part.memory
                k += 1
        state.held.nodes[s] = k
        for i, donor in enumerate(one.allocation.donors):
            state.lent.client[s, i], state.lent.donor[s, i] = donor.client, donor.donor
            state.lent.gpu[s, i] = 1 << donor.device
            state.free[donor.donor] &= ~(1 << donor.device)
        state.lent.borrowed[s] = len(one.allocation.donors)

    def _set_progress(self, state: State, s: int, one: _Runs) -> None:
        """How far a job in slot ``s`` has come."""
        now, base = self._view.now, one.row.base
        state.job[s] = s
        expected = None
        if one.before is not None and self._forecast is not None:
            expected = self._forecast.expected(one.job.id)
        if expected is None:
            state.left[s], state.since[s], state.rate[s] = base, now, 1.0
            state.due[s], state.took[s] = now + base, base
            return
        state.left[s], state.since[s], state.rate[s] = expected.left, expected.since, expected.rate
        state.due[s] = expected.since + expected.left / expected.rate
        state.took[s] = base
        communication = one.job.communication
        if communication is None or self._rates is None or one.before is None:
            return
        state.took[s] = self._rates.standing(one.job.id)[0]
        state.took[s] += base - times.seconds_alone(self._rates.constants, communication)
        if one.before is not one.allocation:
            left = expected.left - max(0.0, now - expected.since) * expected.rate
            done = 1.0 - max(0.0, left) / expected.total
            state.moved[s] = True
            state.stall[s] = self._longest_stall(communication, one.before, one.allocation, done)
