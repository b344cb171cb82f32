"""The driver in virtual time on a fake executor: late binding, lost nodes, deadlines, interrupts, errors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import pytest
from fake_executor import FakeExecutor

from dovetail.driver.driver import Driver, DriverOptions
from dovetail.driver.live import LiveRun, check_executor
from dovetail.driver.orders import Stop
from dovetail.driver.prepare import check_depends
from dovetail.engine.state.core import no_bound
from dovetail.errors import ExecutorError, InputError, UnsupportedWorkload
from dovetail.history.memory import MemoryHistory
from dovetail.interfaces import Traits, View
from dovetail.model import (
    Adopted,
    Allocation,
    Cluster,
    Decision,
    Dependency,
    Device,
    DeviceClass,
    Ended,
    Event,
    Foreseen,
    Job,
    Launch,
    Migrate,
    Node,
    NodeJoined,
    NodeLost,
    Part,
    Placed,
    Record,
    Run,
    Shape,
    Start,
    Started,
    State,
    Submit,
    Throttle,
    Wait,
    Workload,
)
from dovetail.plugins import load_policy
from dovetail.policies.fcfs import Fcfs
from dovetail.simulation.simulate import SimulationOptions, simulate
from dovetail.testing.builders import TrueTimesModel, rigid, workload
from dovetail.testing.invariants import check_schedule
from dovetail.testing.virtual_time import run_virtual

Rule = Callable[[View], Iterable[Decision]]


@dataclass(frozen=True)
class Scripted:
    rule: Rule
    traits: ClassVar[Traits] = Traits(submits=True, migrates=True)

    def decide(self, view: View) -> Iterable[Decision]:
        return self.rule(view)


@dataclass
class Outside(FakeExecutor):
    """A scheduler behind the executor: puts each job where it likes after 2 s, for 5 s."""

    where: dict[str, Allocation | None] = field(default_factory=dict)
    device: DeviceClass | None = None

    def __post_init__(self) -> None:
        super().__init__(TrueTimesModel(rigid([]).truth).truth)

    async def submit(self, job: Job, decision: Submit, attempt: int) -> None:
        loop = asyncio.get_running_loop()
        started = Started(job.id, self.where.get(job.id), self.device)
        loop.call_later(2, self._happened.put_nowait, started)
        loop.call_later(7, self._happened.put_nowait, Ended(job.id))

    async def inquire(self, shape: Shape) -> None:
        self._happened.put_nowait(Foreseen(shape, 0.0))


class Recorded(MemoryHistory):
    """Keeps every run that it is given, also those that did not complete."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Run] = []

    def record(self, run: Run) -> bool:
        self.kept.append(run)
        return super().record(run)

    def record_many(self, runs: Iterable[Run]) -> int:
        return sum(self.record(run) for run in runs)


def drive(
    jobs: Workload,
    cluster: Cluster,
    policy: Any,
    executor: Any,
    *,
    during: Callable[[LiveRun], None] = lambda run: None,
    **options: Any,
) -> tuple[dict[str, Record], Driver, LiveRun]:
    """Run the jobs live, in virtual time."""
    history = options.pop("history", None)

    async def main() -> tuple[Driver, LiveRun]:
        driver = Driver(
            cluster,
            policy,
            TrueTimesModel(jobs.truth),
            bound=no_bound,
            history=history,
            options=DriverOptions(enforce=True, run_uid="run", **options),
        )
        run = LiveRun(driver, executor, jobs.jobs)
        during(run)
        await run.run()
        driver.engine.validate_books()
        return driver, run

    driver, run = run_virtual(main())
    return driver.engine.records, driver, run


def hand_over(view: View) -> Iterable[Decision]:
    return [Submit(j.id, j.choices[0].implementation.name, j.choices[0].request, "queue") for j in view.queue]


def test_a_job_that_is_handed_over_is_waited_for_and_recorded() -> None:
    """Nobody said where it runs, but what runs it."""
    jobs, history = workload([("a", {"cpu": 3.0})]), MemoryHistory()
    device = DeviceClass("cpu", "there")
    executor = Outside({}, device)
    records, _, _ = drive(jobs, Cluster.uniform(1, 1), Scripted(hand_over), executor, history=history)
    record = records["a"]
    assert (record.state, record.start, record.end) == (State.COMPLETED, 2.0, 7.0)
    (run,) = history.runs("a", "cpu", device)
    assert (run.seconds, run.nodes, run.uid) == (5.0, 1, "run/a")


def test_a_place_that_overlaps_ours_is_a_fact_and_nobodys_fault() -> None:
    jobs = workload([("a", {"cpu": 3.0}), ("b", {"cpu": 3.0})])
    here = Allocation(jobs.jobs[0].choices[0].request, (Part(1, 1),))

    def rule(view: View) -> Iterable[Decision]:
        for job in view.queue:
            if job.id == "a":
                yield from hand_over(view) if len(view.queue) == 1 else []
            else:
                found = view.free().fit(job.choices[0].request)
                assert found is not None
                yield Start(job.id, "cpu", found)

    executor = Outside({"a": here})
    executor._truth = jobs.truth
    records, driver, _ = drive(jobs, Cluster.uniform(1, 1), Scripted(rule), executor)
    assert [records[job].state for job in "ab"] == [State.COMPLETED] * 2
    assert records["a"].allocation == here
    assert driver.engine.free.count(here.request) == 1


def test_a_lost_node_ends_its_jobs_everywhere() -> None:
    """The executor is told, the history has the run, no deadline is left; with retries it starts again."""
    jobs, history = rigid([(0.0, 1, 10.0, 20.0), (0.0, 1, 10.0, 20.0)]), Recorded()
    again = replace(jobs.jobs[1], retries=1)
    jobs = replace(jobs, jobs=[jobs.jobs[0], again])
    executor = FakeExecutor(jobs.truth, [(4.0, NodeLost(0)), (4.0, NodeLost(1)), (6.0, NodeJoined(1))])
    records, _, _ = drive(jobs, Cluster.uniform(2, 1), Fcfs(), executor, history=history)
    assert (records["0"].state, records["0"].end) == (State.NODE_FAIL, 4.0)
    assert records["0"].detail == "node n0 was lost"
    assert (records["1"].state, records["1"].start, records["1"].attempts) == (State.COMPLETED, 6.0, 2)
    assert not executor._jobs
    kept = sorted((run.uid, run.state, run.seconds) for run in history.kept)
    assert kept == [
        ("run.2/1", State.COMPLETED, 10.0),
        ("run/0", State.NODE_FAIL, 4.0),
        ("run/1", State.NODE_FAIL, 4.0),
    ]


def test_a_walltime_ends_a_job_and_a_signal_comes_before() -> None:
    jobs = rigid([(0.0, 1, 100.0, 30.0), (0.0, 1, 5.0, 30.0)])
    first = replace(jobs.jobs[0], launch=Launch(signal=10, notice=8.0))
    jobs = replace(jobs, jobs=[first, jobs.jobs[1]])
    sent: list[tuple[str, int, float]] = []

    class Signalled(FakeExecutor):
        async def signal(self, job: str, number: int) -> None:
            sent.append((job, number, asyncio.get_running_loop().time()))

    records, _, _ = drive(jobs, Cluster.uniform(1, 1), Fcfs(), Signalled(jobs.truth))
    assert (records["0"].state, records["0"].end) == (State.TIMEOUT, 30.0)
    assert (records["1"].state, records["1"].start) == (State.COMPLETED, 30.0)
    assert sent == [("0", 10, 22.0)]


def test_an_interrupt_stops_what_runs_and_cancels_what_waits() -> None:
    jobs = rigid([(0.0, 1, 100.0, None), (0.0, 1, 5.0, None), (50.0, 1, 5.0, None)])

    def during(run: LiveRun) -> None:
        asyncio.get_running_loop().call_later(3, run.interrupt_run)

    records, _, _ = drive(jobs, Cluster.uniform(1, 1), Fcfs(), FakeExecutor(jobs.truth), during=during)
    assert [records[job].state for job in "012"] == [State.CANCELLED] * 3
    assert (records["0"].start, records["0"].end) == (0.0, 3.0)
    assert records["1"].start is None
    assert records["1"].detail == "the run was interrupted"


def test_a_drained_run_ends_after_what_runs() -> None:
    jobs = rigid([(0.0, 1, 10.0, None), (0.0, 1, 5.0, None)])

    def during(run: LiveRun) -> None:
        asyncio.get_running_loop().call_later(3, run.stop)

    records, driver, _ = drive(jobs, Cluster.uniform(1, 1), Fcfs(), FakeExecutor(jobs.truth), during=during)
    assert (records["0"].state, records["0"].end) == (State.COMPLETED, 10.0)
    assert records["1"].state is State.PENDING
    assert driver.has_waiting_jobs


class FullDisk:
    """A ledger that can write nothing between two moments, and owes it."""

    def __init__(self, since: float, until: float) -> None:
        self.since, self.until = since, until
        self.kept: list[Event] = []
        self._owed: list[Event] = []

    @property
    def is_blocked(self) -> bool:
        return bool(self._owed)

    @property
    def why_blocked(self) -> str:
        return "the disk is full" if self._owed else ""

    def settle(self) -> bool:
        if not self.since <= asyncio.get_running_loop().time() < self.until:
            self.kept += self._owed
            self._owed.clear()
        return not self._owed

    def keep(self, now: float, events: Any, orders: Any, engine: Any) -> None:
        self._owed += events
        self.settle()


@pytest.mark.parametrize(("interrupt", "last"), [(None, 30.0), (20.0, 20.0)])
def test_a_run_is_over_once_the_ends_of_its_jobs_are_on_record(interrupt: float | None, last: float) -> None:
    """All end while the disk is full: the run waits for it, unless it is interrupted."""
    jobs = rigid([(0.0, 1, 10.0, None), (0.0, 1, 5.0, None)])
    disk, over = FullDisk(3.0, 30.0), [0.0]

    def during(run: LiveRun) -> None:
        loop = asyncio.get_running_loop()
        run.driver.ledger = disk
        if interrupt is not None:
            loop.call_later(interrupt, run.interrupt_run)
        close = run.executor.close

        async def note_end() -> None:
            over[0] = loop.time()
            await close()

        run.executor.close = note_end  # type: ignore[method-assign]

    records, _, _ = drive(jobs, Cluster.uniform(2, 1), Fcfs(), FakeExecutor(jobs.truth), during=during)
    assert [records[job].state for job in "01"] == [State.COMPLETED] * 2
    assert last <= over[0] < last + 5.0
    ends = [event.job for event in disk.kept if isinstance(event, Ended)]
    assert ends == (["1", "0"] if interrupt is None else [])


@pytest.mark.parametrize(
    "error", [ExecutorError("no more processes"), RuntimeError("bug"), OSError(5, "the disk is broken")]
)
def test_an_error_at_a_launch_ends_that_job_alone(error: Exception) -> None:
    jobs = rigid([(0.0, 1, 10.0, None), (0.0, 1, 5.0, None), (0.0, 1, 5.0, None)])

    class Fails(FakeExecutor):
        async def launch(self, placed: Placed) -> None:
            if placed.job.id == "1":
                raise error
            await super().launch(placed)

    records, _, _ = drive(jobs, Cluster.uniform(1, 1), Fcfs(), Fails(jobs.truth))
    assert [records[job].state for job in "012"] == [State.COMPLETED, State.FAILED, State.COMPLETED]
    assert records["1"].detail == f"the executor could not start it: {error}"


@pytest.mark.parametrize("number", [11, 12, 28])
def test_for_want_of_processes_memory_or_room_jobs_wait(number: int) -> None:
    """What is lacking is said once; it is there again at the third try."""
    jobs = rigid([(0.0, 1, 10.0, None), (0.0, 1, 5.0, None), (0.0, 1, 5.0, None)])
    tries: list[str] = []

    class Lacks(FakeExecutor):
        async def launch(self, placed: Placed) -> None:
            tries.append(placed.job.id)
            if placed.job.id == "1" and tries.count("1") < 3:
                raise ExecutorError("it cannot be started") from OSError(number, "lacking")
            await super().launch(placed)

    told: list[str] = []

    def during(run: LiveRun) -> None:
        run._tell = told.append

    records, _, _ = drive(jobs, Cluster.uniform(1, 1), Fcfs(), Lacks(jobs.truth), during=during)
    assert [records[job].state for job in "012"] == [State.COMPLETED] * 3
    assert tries == ["0", "1", "1", "1", "2"]
    assert [records[job].start for job in "012"] == [0.0, 14.0, 19.0]
    assert [records[job].attempts for job in "012"] == [1, 1, 1]
    assert [one.endswith("nothing fails for it") for one in told] == [True, False]


def test_an_executor_whose_events_fail_ends_the_run_after_closing() -> None:
    jobs = rigid([(0.0, 1, 10.0, None)])

    class Breaks(FakeExecutor):
        closed = False

        async def events(self) -> Any:
            yield Started("0")
            raise ExecutorError("the connection is gone")

        async def close(self) -> None:
            self.closed = True
            await super().close()

    executor = Breaks(jobs.truth)
    with pytest.raises(ExecutorError, match="the connection is gone"):
        drive(jobs, Cluster.uniform(1, 1), Fcfs(), executor)
    assert executor.closed


def two_gpu_nodes() -> Cluster:
    return Cluster(tuple(Node(f"n{i}", (0, 1), (Device("gpu"), Device("gpu", "", 1))) for i in range(2)))


def test_a_migration_holds_both_places_until_the_work_has_moved() -> None:
    jobs = workload([("a", {"gpu": 20.0})])
    request = jobs.jobs[0].choices[0].request
    free_between: list[int] = []

    def rule(view: View) -> Iterable[Decision]:
        free_between.append(view.free().count(request))
        for job in view.queue:
            yield Start(job.id, "gpu", Allocation(request, (Part(1, 0, (0,)),)))
            yield Wait(job.id, "", 5.0)
        if view.now == 5.0 and "a" not in view.moving:
            yield Migrate("a", Allocation(request, (Part(2, 0, (1,)),)))
            yield Wait("a", "", 6.0)

    cluster = two_gpu_nodes()
    executor = FakeExecutor(jobs.truth, stall=3.0)
    records, _, _ = drive(jobs, cluster, Scripted(rule), executor, hold_moves=True)
    record = records["a"]
    assert (record.state, record.end) == (State.COMPLETED, 23.0)
    assert [(s.start, s.end, s.allocation.device_names(cluster)) for s in record.earlier] == [
        (0.0, 5.0, ["n0/gpu0"]),
        (5.0, 8.0, ["n0/gpu0", "n1/gpu1"]),
    ]
    assert record.allocation is not None
    assert record.allocation.device_names(cluster) == ["n1/gpu1"]


def test_a_migration_that_fails_leaves_the_job_where_it_was() -> None:
    jobs = workload([("a", {"gpu": 20.0})])
    request = jobs.jobs[0].choices[0].request

    class Cannot(FakeExecutor):
        async def migrate(self, placed: Placed, target: Allocation) -> None:
            raise ExecutorError("the target is gone")

    def rule(view: View) -> Iterable[Decision]:
        for job in view.queue:
            yield Start(job.id, "gpu", Allocation(request, (Part(1, 0, (0,)),)))
            yield Wait(job.id, "", 5.0)
        if view.now == 5.0 and not view.changes.otherwise and "a" not in view.moving:
            yield Migrate("a", Allocation(request, (Part(2, 0, (1,)),)))

    records, driver, _ = drive(jobs, two_gpu_nodes(), Scripted(rule), Cannot(jobs.truth), hold_moves=True)
    assert (records["a"].state, records["a"].end, records["a"].migrations) == (State.COMPLETED, 20.0, 0)
    assert driver.engine.free.count(request) == 2


def test_what_an_executor_cannot_do_is_refused_before_anything_runs() -> None:
    with pytest.raises(UnsupportedWorkload, match="hands jobs to an outside scheduler, and executor local"):
        check_executor(Scripted(hand_over), "guest", FakeExecutor(rigid([]).truth), "local")


# ------------------------------------------------------------------------------------------ admission


def test_dependencies_hold_jobs_back_and_cancel_what_can_never_start() -> None:
    jobs = rigid([(0.0, 1, 10.0, 5.0), (0.0, 1, 3.0, 9.0), (0.0, 1, 4.0, 9.0), (0.0, 1, 1.0, 9.0)])
    first, ok, anyway, after = jobs.jobs
    jobs = replace(
        jobs,
        jobs=[
            first,
            replace(ok, depends=(Dependency("afterok", "0"),)),
            replace(anyway, depends=(Dependency("afterany", "0"), Dependency("afterany", "1"))),
            replace(after, depends=(Dependency("afterok", "1"),)),
        ],
    )
    result = simulate(
        jobs, Cluster.uniform(4, 1), Fcfs(), TrueTimesModel(jobs.truth), options=SimulationOptions()
    )
    check_schedule(result, jobs)
    rows = {r.job.id: (r.state, r.start, r.detail) for r in result.records}
    assert rows["0"][:2] == (State.TIMEOUT, 0.0)
    assert rows["1"] == (State.CANCELLED, None, "afterok:0 cannot come true: that job is TIMEOUT")
    assert rows["2"][:2] == (State.COMPLETED, 5.0)
    assert rows["3"] == (State.CANCELLED, None, "afterok:1 cannot come true: that job is CANCELLED")


def test_who_waits_for_a_failure_starts_after_one_and_is_cancelled_otherwise() -> None:
    jobs = rigid([(0.0, 1, 10.0, 5.0), (0.0, 1, 3.0, 9.0), (0.0, 1, 4.0, 9.0), (0.0, 1, 1.0, 9.0)])
    killed, fine, after_killed, after_fine = jobs.jobs
    after = [
        replace(after_killed, depends=(Dependency("afternotok", "0"),)),
        replace(after_fine, depends=(Dependency("afternotok", "1"),)),
    ]
    jobs = replace(jobs, jobs=[killed, fine, *after])
    result = simulate(
        jobs, Cluster.uniform(4, 1), Fcfs(), TrueTimesModel(jobs.truth), options=SimulationOptions()
    )
    rows = {r.job.id: (r.state, r.start, r.detail) for r in result.records}
    assert rows["2"][:2] == (State.COMPLETED, 5.0)
    assert rows["3"] == (State.CANCELLED, None, "afternotok:1 cannot come true: that job is COMPLETED")


def test_throttles_let_so_many_through_at_once() -> None:
    jobs = rigid([(0.0, 1, 10.0, None)] * 5)
    jobs = replace(jobs, jobs=[replace(job, throttles=(Throttle("array", 2),)) for job in jobs.jobs])
    result = simulate(
        jobs, Cluster.uniform(4, 1), Fcfs(), TrueTimesModel(jobs.truth), options=SimulationOptions()
    )
    assert [record.start for record in result.records] == [0.0, 0.0, 10.0, 10.0, 20.0]


@pytest.mark.parametrize(
    ("depends", "sentence"),
    [
        ({"0": "nobody"}, "job 0 depends on 'nobody', which is no job here"),
        ({"0": "1", "1": "2", "2": "0"}, "dependencies go round in a circle: "),
        ({"0": "0"}, "dependencies go round in a circle: 0 -> 0"),
    ],
)
def test_dependencies_that_cannot_be_are_refused(depends: dict[str, str], sentence: str) -> None:
    jobs = rigid([(0.0, 1, 1.0, None)] * 3)
    made = [
        replace(job, depends=(Dependency("afterok", depends[job.id]),)) if job.id in depends else job
        for job in jobs.jobs
    ]
    with pytest.raises(InputError) as caught:
        check_depends(replace(jobs, jobs=made))
    assert sentence in str(caught.value)


def test_what_is_adopted_past_its_walltime_is_stopped_once_orders_are_carried_out() -> None:
    """Whoever enters what runs discards the orders of that instant: the job ran on for ever."""
    job = rigid([(0.0, 1, 1.0, 10.0)]).jobs[0]
    drivers = [
        Driver(
            Cluster.uniform(1, 1),
            Fcfs(),
            TrueTimesModel(rigid([]).truth),
            bound=no_bound,
            options=DriverOptions(enforce=True),
        )
        for _ in range(2)
    ]
    drivers[0].submit(job)
    (placed,) = drivers[0].process_instant(0.0)
    assert isinstance(placed, Placed)
    after = drivers[1]
    after.adopt_job(job, Adopted(job.id, placed.implementation.name, placed.allocation, -20.0))
    assert not after.process_instant(0.0)
    assert 0.0 < after.next_time() < 1e-9
    (order,) = after.process_instant(after.next_time())
    assert isinstance(order, Stop)
    assert order.state is State.TIMEOUT


def test_a_service_that_retires_its_jobs_keeps_nothing_of_them() -> None:
    driver = Driver(
        Cluster.uniform(4, 1),
        Fcfs(),
        TrueTimesModel(rigid([]).truth),
        bound=no_bound,
        options=DriverOptions(),
    )
    template = rigid([(0.0, 1, 1.0, 10.0)]).jobs[0]
    for i in range(200):
        driver.submit(replace(template, id=f"j{i}", index=i, submit_time=float(i)))
        for order in driver.process_instant(float(i)):
            assert isinstance(order, Placed)
            driver.queue_events(Ended(order.job.id))
        driver.write_last_instant()
        for record in driver.ended():
            driver.retire_job(record.job.id)
    engine = driver.engine
    assert len(engine.records) <= 2
    assert len(engine.queue._place) <= 2
    with pytest.raises(ValueError, match="cannot be retired while it is"):
        driver.retire_job("j199") if "j199" in engine.running else driver.retire_job("nobody")


def test_events_that_come_late_are_passed_over() -> None:
    jobs = rigid([(0.0, 1, 10.0, None)])
    late: list[tuple[float, Event]] = [(1.0, Ended("0", attempt=7)), (12.0, Ended("0")), (13.0, Ended("x"))]
    records, _, _ = drive(
        replace(jobs, jobs=[*jobs.jobs, replace(jobs.jobs[0], id="1", submit_time=20.0)]),
        Cluster.uniform(1, 1),
        Fcfs(),
        FakeExecutor(type(jobs.truth)(fixed={"0": 10.0, "1": 1.0}), late),  # type: ignore[call-arg]
    )
    assert (records["0"].state, records["0"].end) == (State.COMPLETED, 10.0)
    assert records["1"].end == 21.0


@pytest.mark.parametrize("name", ["history", "history-guarded", "best-device", "cpu-only", "brr", "fcfs"])
def test_no_job_waits_for_a_node_that_is_gone_while_another_could_run_it(name: str) -> None:
    """The queue of a lost node's device goes back, and nobody is bound to it while it is gone."""
    jobs = workload([(f"j{i}", {"cpu": 2.0}) for i in range(6)])
    executor = FakeExecutor(jobs.truth, [(1.0, NodeLost(0))])
    records, _, _ = drive(jobs, Cluster.parse("2x1cpu"), load_policy(name).policy, executor)
    lost = [record for record in records.values() if record.state is State.NODE_FAIL]
    assert [record.end for record in lost] == [1.0]
    rest = [record for record in records.values() if record not in lost]
    assert all(record.state is State.COMPLETED for record in rest)
    assert max(record.end or 0.0 for record in rest) == 10.0


def test_jobs_that_only_nodes_could_run_that_left_for_good_are_cancelled_with_all_that_waits_for_them() -> (
    None
):
    """The run ends by itself; who waits for a job that another cluster may run is not told that it failed."""
    jobs = rigid([(0.0, 2, 10.0, 20.0), (0.0, 1, 10.0, 20.0), (0.0, 2, 1.0, 2.0), (0.0, 1, 5.0, 20.0)])
    wide, narrow, gang, last = jobs.jobs
    queue = [replace(wide, retries=1), narrow, replace(gang, depends=(Dependency("afterany", "0"),)), last]
    lost = [(4.0, NodeLost(0, for_good=True))]
    jobs = replace(jobs, jobs=queue)
    records, _, _ = drive(jobs, Cluster.uniform(2, 1), Fcfs(), FakeExecutor(jobs.truth, lost))
    assert [records[job].state for job in "0123"] == [
        *(State.CANCELLED, State.COMPLETED, State.CANCELLED, State.COMPLETED)
    ]
    assert records["0"].detail == "no node is left that could run it: needs 2 nodes, and there are 1"
    assert records["2"].detail.startswith("no node is left that could run it")


def test_a_run_in_which_nothing_happens_says_so_after_a_minute_and_why() -> None:
    """The node may come back: that is waited for, and told, ever less often."""
    jobs = rigid([(0.0, 1, 10.0, 20.0), (0.0, 2, 10.0, 20.0)])

    class Troubled(FakeExecutor):
        def trouble(self) -> str:
            return "node n1 is lost: it burns"

    executor = Troubled(jobs.truth, [(4.0, NodeLost(1)), (300.0, NodeJoined(1))])
    records, _, run = drive(jobs, Cluster.uniform(2, 1), Fcfs(), executor)
    assert records["1"].state is State.COMPLETED
    assert [trouble for trouble in run.troubles if "nothing" in trouble] == [
        f"nothing has happened for {seconds} s: nothing runs, 1 job waits: node n1 is lost: it burns"
        for seconds in (60, 120, 240)
    ]
