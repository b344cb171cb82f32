"""The outcome of a compiled simulation as records, as the engine would have kept them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import groupby
from typing import overload

import numpy as np
import numpy.typing as npt

from dovetail.kernels.borrowing_arrays import Columns, Outcome
from dovetail.model import (
    EMPTY,
    Allocation,
    Cluster,
    DeviceClass,
    Donor,
    Job,
    Part,
    Prediction,
    Record,
    Span,
    State,
    Workload,
    bits,
)

__all__ = ["BorrowedRecords", "Move", "moves_by_job"]

Ints = npt.NDArray[np.int64]
Move = tuple[int, float, int, int, int, int]
"""Job, time, client, donor, the donor's GPU, the client's GPU."""


class BorrowedRecords(Sequence[Record]):
    """What became of gangs that may borrow GPUs, in file order; records are made when one is asked for.

    ``columns`` and ``outcome`` are by submission, ``order`` gives the place of each record's job there. Every
    job has run to its end.
    """

    def __init__(
        self,
        workload: Workload,
        cluster: Cluster,
        device: DeviceClass,
        columns: Columns,
        outcome: Outcome,
        *,
        considered: bool,
    ) -> None:
        self.workload, self.cluster, self.device = workload, cluster, device
        self.columns, self.outcome, self.considered = columns, outcome, considered
        self.order: Ints = np.argsort(np.array([job.index for job in workload.jobs], np.int64), kind="stable")

    @cached_property
    def jobs(self) -> list[Job]:
        """The jobs of the records."""
        jobs = self.workload.jobs
        return [jobs[place] for place in self.order.tolist()]

    @property
    def makespan(self) -> float:
        """Seconds from the first submission to the last end; 0 without jobs."""
        if not len(self):
            return 0.0
        return float(self.outcome.end.max()) - float(self.columns.submit.min())

    @cached_property
    def _made(self) -> list[Record]:
        found = _records_of(
            self.workload, self.cluster, self.device, self.columns, self.outcome, considered=self.considered
        )
        return [found[place] for place in self.order.tolist()]

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        return self._made[index]

    def __iter__(self) -> Iterator[Record]:
        return iter(self._made)

    def __reduce__(self) -> tuple[object, ...]:
        return list, (self._made,)


def _records_of(
    workload: Workload,
    cluster: Cluster,
    device: DeviceClass,
    columns: Columns,
    outcome: Outcome,
    *,
    considered: bool,
) -> list[Record]:
    """A record for each job of the workload, in its order. O(their nodes, borrowed GPUs and moves)."""
    places = _Places(cluster, columns, outcome)
    starts, ends, borrowed = outcome.start.tolist(), outcome.end.tolist(), outcome.borrowed.tolist()
    base = columns.base.tolist()
    records = []
    for j, job in enumerate(workload.jobs):
        first, later = places.of(j, job)
        implementation = job.choices[0].implementation
        known = Prediction(base[j], base[j], 1, "true time", base[j])
        record = Record(
            job,
            State.COMPLETED,
            implementation,
            first,
            starts[j],
            ends[j],
            known,
            0,
            considered=((f"{implementation.name} on {device}", base[j]),) if considered else (),
            device_class=device,
            attempts=1,
            remote_gpus=borrowed[j],
        )
        for time, allocation, count in later:
            assert record.allocation is not None
            assert record.start is not None
            since = record.start if record.since is None else record.since
            if since < time:
                span = Span(since, time, record.allocation, implementation)
                record.earlier = (*record.earlier, span)
            record.since, record.allocation = time, allocation
            record.migrations += count
        records.append(record)
    return records


class _Later(Mapping[int, tuple[int, ...]]):
    """A mapping that is made when somebody looks: nobody asks most jobs for their core ids."""

    __slots__ = ("_found", "_make")

    def __init__(self, make: Callable[[], Mapping[int, tuple[int, ...]]]) -> None:
        self._make: Callable[[], Mapping[int, tuple[int, ...]]] | None = make
        self._found: Mapping[int, tuple[int, ...]] = EMPTY

    @property
    def _spelt(self) -> Mapping[int, tuple[int, ...]]:
        if self._make is not None:
            self._found, self._make = self._make(), None
        return self._found

    def __getitem__(self, node: int) -> tuple[int, ...]:
        return self._spelt[node]

    def __iter__(self) -> Iterator[int]:
        return iter(self._spelt)

    def __len__(self) -> int:
        return len(self._spelt)

    def __reduce__(self) -> tuple[object, ...]:
        return dict, (dict(self._spelt),)


class _Places:
    """Where jobs are, from the arrays."""

    def __init__(self, cluster: Cluster, columns: Columns, outcome: Outcome) -> None:
        from dovetail.kernels.borrowing_cores import assign_cores  # loads a compiler

        self._cluster = cluster
        self._bit = [1 << n for n in range(len(cluster.nodes))]
        self._cpus: list[int] = columns.cpus.tolist()
        self._lists: dict[int, tuple[int, ...]] = {}  # positions of a mask
        pools = [node.cores for node in cluster.nodes]
        alike = dict.fromkeys(pools)
        numbers = {pool: i for i, pool in enumerate(alike)}
        self._pools = [numbers[pool] for pool in pools]
        self._sizes = [len(pool) for pool in pools]
        self._ids: list[dict[int, tuple[int, ...]]] = [{} for _ in alike]  # core ids of a mask, by pool
        self._node: list[int] = outcome.node.tolist()
        self._mask: list[int] = outcome.mask.tolist()
        self._client: list[int] = outcome.client.tolist()
        self._donor: list[int] = outcome.donor.tolist()
        self._gpu: list[int] = outcome.gpu.tolist()
        self._first_node: list[int] = outcome.first_node.tolist()
        self._first_lent: list[int] = outcome.first_lent.tolist()
        self._borrowed: list[int] = outcome.borrowed.tolist()
        self._cores: list[int] = assign_cores(columns, outcome, np.array(self._sizes, np.int64)).tolist()
        self._moves = dict(moves_by_job(outcome))

    def of(self, j: int, job: Job) -> tuple[Allocation, Iterator[tuple[float, Allocation, int]]]:
        """Where it starts; then, of each move, when, where to, and how many GPUs came home."""
        request = job.choices[0].request
        at, lent = self._first_node[j], self._first_lent[j]
        nodes = range(at, at + request.nodes)
        own = list(zip(self._node[at : nodes.stop], self._mask[at : nodes.stop], strict=True))
        donors = {
            (self._donor[i], self._gpu[i]): Donor(
                self._client[i], self._donor[i], self._gpu[i].bit_length() - 1
            )
            for i in range(lent, lent + self._borrowed[j])
        }
        cores = self._cores_of(j, nodes)
        first = self._allocation(job, own, donors, cores)
        moves = self._moves.get(j)
        return first, iter(()) if moves is None else self._later(moves, job, dict(own), donors, cores)

    def _later(
        self,
        moves: list[Move],
        job: Job,
        own: dict[int, int],
        donors: dict[tuple[int, int], Donor],
        cores: Mapping[int, tuple[int, ...]],
    ) -> Iterator[tuple[float, Allocation, int]]:
        for time, together in groupby(moves, key=lambda move: move[1]):
            count = 0
            for _, _, client, donor, gpu, home in together:
                own[client] |= home
                del donors[donor, gpu]
                count += 1
            yield time, self._allocation(job, own.items(), donors, cores), count

    def _allocation(
        self,
        job: Job,
        own: Iterable[tuple[int, int]],
        donors: Mapping[tuple[int, int], Donor],
        cores: Mapping[int, tuple[int, ...]],
    ) -> Allocation:
        request = job.choices[0].request
        shares: dict[int, int] = {}
        bit = self._bit
        for n, mask in own:
            shares[mask] = shares.get(mask, 0) | bit[n]
        cpus, memory, positions = request.cpus, request.memory, self._positions
        parts = [Part(nodes, cpus, positions(mask), memory=memory) for mask, nodes in shares.items()]
        return Allocation(request, tuple(parts), cores, tuple(donors.values()))

    def _cores_of(self, j: int, nodes: range) -> Mapping[int, tuple[int, ...]]:
        """Core ids on nodes of which the job takes a part."""
        cpus = self._cpus[j]
        if not cpus or all(self._sizes[n] == cpus for n in self._node[nodes.start : nodes.stop]):
            return EMPTY
        return _Later(partial(self.spelt_cores, cpus, nodes))

    def spelt_cores(self, cpus: int, nodes: range) -> Mapping[int, tuple[int, ...]]:
        """The same, spelt out."""
        found: dict[int, tuple[int, ...]] = {}
        for i in nodes:
            n = self._node[i]
            if self._sizes[n] != cpus:
                mask, known = self._cores[i], self._ids[self._pools[n]]
                cores = known.get(mask)
                if cores is None:
                    pool = self._cluster.nodes[n].cores
                    cores = known[mask] = tuple(pool[c] for c in self._positions(mask))
                found[n] = cores
        return found

    def _positions(self, mask: int) -> tuple[int, ...]:
        found = self._lists.get(mask)
        if found is None:
            found = self._lists[mask] = tuple(bits(mask))
        return found


def moves_by_job(outcome: Outcome) -> Iterator[tuple[int, list[Move]]]:
    """The moves of each job that moved, by time."""
    moves, count = outcome.moves, int(outcome.moves.made[0])
    order = np.argsort(moves.job[:count], kind="stable")
    columns = (moves.job, moves.time, moves.client, moves.donor, moves.gpu, moves.home)
    rows = zip(*(column[:count][order].tolist() for column in columns), strict=True)
    for job, group in groupby(rows, key=lambda row: row[0]):
        yield job, list(group)
