"""Jobs and records kept as columns: a million of them in the memory of their numbers.

A `Job` or a `Record` is made on demand. Code that works on all of them takes the columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, overload

from dovetail.files.arrays import Bools, Floats, Ints, np
from dovetail.model.allocation import Allocation, Part
from dovetail.model.event import State
from dovetail.model.job import EMPTY, App, Choice, Job, JobId, Seconds
from dovetail.model.node import DeviceClass
from dovetail.model.record import Prediction, Record
from dovetail.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

Form = tuple[App, tuple[Choice, ...]]
"""The app of a job and the one way in which it runs, which many jobs share."""
CHUNK = 10_000


class NumberedIds(Sequence[JobId]):
    """Ids that are the texts of numbers, each made on demand."""

    def __init__(self, numbers: Ints) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, index: int) -> JobId: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[JobId]: ...
    def __getitem__(self, index: int | slice) -> JobId | Sequence[JobId]:
        found = self.numbers[index]
        return list(map(str, found.tolist())) if isinstance(index, slice) else str(found)

    def at(self, places: Ints) -> NumberedIds:
        """The ids at these places."""
        return NumberedIds(self.numbers[places])


class Times(Mapping[JobId, Seconds]):
    """A number of seconds for each id, worked out on demand; NaN where there is none."""

    def __init__(self, ids: Sequence[JobId], seconds: Floats) -> None:
        self._ids, self._seconds = ids, seconds

    @cached_property
    def _known(self) -> dict[JobId, Seconds]:
        pairs = zip(self._ids[:], self._seconds.tolist(), strict=True)
        # NaN is the only value that differs from itself: no time.
        return {id: seconds for id, seconds in pairs if seconds == seconds}

    def __getitem__(self, id: JobId) -> Seconds:
        return self._known[id]

    @cached_property
    def get(self) -> Callable[..., Any]:
        """As of a dict, and as fast."""
        return self._known.get

    def __iter__(self) -> Iterator[JobId]:
        return iter(self._known)

    def __len__(self) -> int:
        return int((self._seconds == self._seconds).sum())

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_known", "get")}


@dataclass(frozen=True, eq=False)
class JobTable(Sequence[Job]):
    """Jobs by submission, each with one way to run and its true seconds; columns have shape (jobs,).

    ``form`` is the place in ``forms``; ``place`` that in the file; ``walltime`` is NaN where there is
    none; ``user``, ``group`` and ``queue`` are numbers, negative where there is none. A loop over
    all jobs gets the same objects each time.
    """

    ids: NumberedIds | Sequence[JobId]
    place: Ints
    submit: Floats
    seconds: Floats
    walltime: Floats
    form: Ints
    forms: Sequence[Form]
    user: Ints
    group: Ints
    queue: Ints

    def __len__(self) -> int:
        return len(self.submit)

    @overload
    def __getitem__(self, index: int) -> Job: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Job]: ...
    def __getitem__(self, index: int | slice) -> Job | Sequence[Job]:
        # Once made, all jobs are the same objects each time: policies keep them in dictionaries by identity.
        made = self.__dict__.get("made")
        if made is not None:
            found: Job | Sequence[Job] = made[index]
            return found
        places = np.arange(len(self))[index]
        if isinstance(index, slice):
            return list(self._made_of(places))
        return next(self._made_of(np.array([places])))

    def __iter__(self) -> Iterator[Job]:
        return iter(self.made)

    @cached_property
    def made(self) -> list[Job]:
        """All jobs as objects, kept from the first time on."""
        return list(self.iterate_fleeting())

    def iterate_fleeting(self, places: Ints | None = None) -> Iterator[Job]:
        """The jobs (at these places) one by one, without keeping them."""
        wanted = np.arange(len(self)) if places is None else places
        made = self.__dict__.get("made")
        if made is not None:
            return map(made.__getitem__, wanted.tolist())
        # In pieces: lists of a million numbers at once would be as large as the jobs.
        chunks = (wanted[first : first + CHUNK] for first in range(0, len(wanted), CHUNK))
        return chain.from_iterable(map(self._made_of, chunks))

    def _made_of(self, places: Ints) -> Iterator[Job]:
        ids = self.ids_at(places)[:]
        columns = (self.place, self.submit, self.walltime, self.form, self.user, self.group, self.queue)
        forms = [(app, choices, choices[0].request.nodes) for app, choices in self.forms]
        names = _Names()
        for id, place, submit, walltime, form, user, group, queue in zip(
            ids, *(column[places].tolist() for column in columns), strict=True
        ):
            app, choices, nodes = forms[form]
            limit = walltime if walltime == walltime else None
            # By place: a call with names takes twice as long.
            yield Job(
                id, app, choices, place, submit, EMPTY, nodes, limit, names[user], names[group], names[queue]
            )

    def ids_at(self, places: Ints) -> Sequence[JobId]:
        """The ids at these places."""
        ids = self.ids
        return ids.at(places) if isinstance(ids, NumberedIds) else [ids[i] for i in places.tolist()]

    @cached_property
    def times(self) -> Times:
        """The true seconds by id."""
        return Times(self.ids, self.seconds)

    @cached_property
    def nodes(self) -> Ints:
        """Nodes that each requests."""
        return self.by_form([choices[0].request.nodes for _, choices in self.forms])

    def by_form(self, values: Sequence[int]) -> Ints:
        """For each job the value of its form."""
        return np.asarray(values, np.int64)[self.form]

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "made"}


class _Names(dict[int, str | None]):
    """The text of a number, one for all who share it; ``None`` of a negative one."""

    def __missing__(self, number: int) -> str | None:
        # One text for all that share it: a log of a million jobs has a few hundred users.
        found = self[number] = None if number < 0 else str(number)
        return found


@dataclass(frozen=True, eq=False)
class RecordTable(Sequence[Record]):
    """What became of rigid jobs on like nodes, all of which ran once, on whole nodes, to their end.

    ``jobs`` are by submission, and so are the columns, of shape (jobs,); ``order`` gives the place of each
    record's job: records are in file order. ``promised`` is NaN where nothing was promised; ``killed`` jobs
    ended at their walltime. A job held the nodes from ``low`` to before ``high`` of ``runs`` runs from
    ``first`` on, ``pool`` CPUs of each. ``seconds`` are the true times, which were known to the policy.
    """

    jobs: Sequence[Job]
    order: Ints
    seconds: Floats
    start: Floats
    end: Floats
    promised: Floats
    killed: Bools
    first: Ints
    runs: Ints
    low: NDArray[np.int32]
    high: NDArray[np.int32]
    pool: int
    device: DeviceClass

    def __len__(self) -> int:
        return len(self.order)

    @overload
    def __getitem__(self, index: int) -> Record: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Record]: ...
    def __getitem__(self, index: int | slice) -> Record | Sequence[Record]:
        places = self.order[index]
        if isinstance(index, slice):
            jobs = self.jobs_of(index)
            return [self._make_record(place, job) for place, job in zip(places.tolist(), jobs, strict=True)]
        return self._make_record(int(places), self.jobs[int(places)])

    def __iter__(self) -> Iterator[Record]:
        # In file order one pass over the columns does; else each job is needed twice.
        if isinstance(self.jobs, JobTable) and self.in_file_order:
            jobs = self.jobs.iterate_fleeting()
            return (self._make_record(place, job) for place, job in enumerate(jobs))
        jobs_made = list(self.jobs)
        return (self._make_record(place, jobs_made[place]) for place in self.order.tolist())

    def jobs_of(self, part: slice) -> Iterator[Job]:
        """The jobs of some records."""
        places = self.order[part]
        if isinstance(self.jobs, JobTable):
            return self.jobs.iterate_fleeting(places)
        return (self.jobs[place] for place in places.tolist())

    def _make_record(self, place: int, job: Job) -> Record:
        killed, seconds, promised = bool(self.killed[place]), float(self.seconds[place]), self.promised[place]
        request = job.choices[0].request
        mask = 0
        # Runs of neighbouring nodes: a mask by node would take as long as the machine is wide.
        for run in range(self.first[place], self.first[place] + self.runs[place]):
            low, high = int(self.low[run]), int(self.high[run])
            mask |= ((1 << (high - low)) - 1) << low
        return Record(
            job,
            State.TIMEOUT if killed else State.COMPLETED,
            job.choices[0].implementation,
            Allocation(request, (Part(mask, self.pool, memory=request.memory),)),
            float(self.start[place]),
            float(self.end[place]),
            Prediction(seconds, seconds, 1, "true time", seconds),
            exit_code=None if killed else 0,
            promised=float(promised) if promised == promised else None,
            device_class=self.device,
            attempts=1,
        )

    @cached_property
    def in_file_order(self) -> bool:
        """Whether jobs were submitted in file order."""
        return bool((self.order[1:] > self.order[:-1]).all())

    def in_order(self, values: NDArray[Any]) -> NDArray[Any]:
        """A column in the order of the records."""
        return values if self.in_file_order else values[self.order]

    @property
    def makespan(self) -> Seconds:
        """First submission to last end; 0 without jobs."""
        return float(self.end.max() - self.submit.min()) if len(self) else 0.0

    @cached_property
    def submit(self) -> Floats:
        """Submit times by submission."""
        if isinstance(self.jobs, JobTable):
            return self.jobs.submit
        return np.array([job.submit_time for job in self.jobs], float)

    @cached_property
    def nodes(self) -> Ints:
        """Nodes that each held, by submission."""
        if isinstance(self.jobs, JobTable):
            return self.jobs.nodes
        return np.array([job.choices[0].request.nodes for job in self.jobs], np.int64)
