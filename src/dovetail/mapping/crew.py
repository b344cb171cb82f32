"""The workers of an engine, as the map scheduler sees them: its orders to them, and their events."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from dovetail.mapping.places import Place
from dovetail.mapping.running import Failure, Work
from dovetail.records import dataclass


@dataclass(eq=False, slots=True)
class Slot:
    """One worker. ``number`` is its own, ``node`` names its machine (empty: this one).

    ``warm``: it has run the function before, so that what is loaded and built once no longer counts.
    """

    number: int
    place: Place
    node: str = ""
    warm: bool = False

    @property
    def kind(self) -> str:
        """Kind of worker."""
        return self.place.kind

    @property
    def name(self) -> str:
        """``gpu 1`` or ``gpu 1 of node``, for people."""
        return f"{self.place.name} of {self.node[:8]}" if self.node else self.place.name


@dataclass(frozen=True, slots=True)
class Ready:
    """A worker is prepared for the map, and has nothing to do."""

    slot: Slot


@dataclass(frozen=True, slots=True)
class Unable:
    """A worker cannot run the function at all: it cannot be loaded there."""

    slot: Slot
    failure: Failure


@dataclass(frozen=True, slots=True)
class Finished:
    """An order was carried out.

    ``values`` are results by position, or, of an order that was folded, the nodes of the tree. ``seconds``
    are those of the function alone, ``size`` the bytes that came back. ``ran`` items were run, from the
    first on: all, or those up to some failures in a row. Of an executor's calls what was made so far may come
    before the ``last``; ``values`` are then outcomes from the call at ``first`` on.
    """

    slot: Slot
    order: int
    values: list[Any]
    failures: Sequence[Failure]
    seconds: float
    ran: int
    size: int = 0
    first: int = 0
    last: bool = True


@dataclass(frozen=True, slots=True)
class Lost:
    """A worker has gone, and with it what it had not sent.

    ``position`` is that of the first of ``span`` items of which one ran, ``None`` if that is not known.
    ``by_itself``: it left in good order, by an exit that the function called. ``begun`` is how many items of
    its first order had begun, where the crew knows that; more than there are, if all had. ``outcomes`` are
    those of an executor's calls that it had made of this order, by their places, as far as they were kept.
    """

    slot: Slot
    reason: str
    position: int | None = None
    span: int = 1
    traceback: str = ""
    by_itself: bool = False
    begun: int = 0
    outcomes: Mapping[int, Any] | None = None


Event: TypeAlias = Ready | Unable | Finished | Lost


class Crew(ABC):
    """Workers of one engine. Used by one thread, but for `end_wait`.

    ``slots`` are all workers that there are; it may change during a `wait`. A crew that is ``kept`` serves
    several maps.
    """

    tells_position: ClassVar[bool]
    """Whether it knows which item of an order a worker is at."""
    slots: list[Slot]
    kept: bool

    @abstractmethod
    def begin_map(self, shipped: Mapping[str, bytes], work: Work) -> None:
        """Prepare all workers for a map; `Ready` follows for each. Raises `InputError`.

        ``shipped`` has the function for each kind (see `function.ship`). No event follows any more for orders
        of a map before. Raises `InUse` while others have what the workers need: to be called again later.
        """

    @abstractmethod
    def send_items(
        self, slot: Slot, order: int, items: Sequence[Any], start: int, *, plain: bool = False
    ) -> None:
        """Give a worker items, to be done after those that it has. Raises what pickling an item raises.

        ``start`` is the first one's place if they are neighbours, else below 0. ``plain``: results as the
        function gives them, whatever the map makes of them.
        """

    @abstractmethod
    def wait(self, seconds: float | None) -> list[Event]:
        """What has happened; waits so long for something (``None``: without end, until woken)."""

    @abstractmethod
    def end_wait(self) -> None:
        """End a wait; from any thread."""

    @abstractmethod
    def item_position(self, slot: Slot) -> int | None:
        """Which item of its first order a worker is at, ``None`` if that is not known."""

    def nodes_of_items(self, items: Sequence[Any]) -> Sequence[str] | None:
        """The node (as `Slot.node`) that holds each item's data; ``None`` where that plays no part."""
        return None

    @abstractmethod
    def kill(self, slot: Slot, reason: str, *, trace: bool = False) -> None:
        """End a worker that is busy; `Lost` follows with this reason, then `Ready` of one in its place.

        ``trace``: with where it was, if that can be had.
        """

    @abstractmethod
    def dismiss_worker(self, slot: Slot) -> None:
        """Let an idle worker of a crew that is not kept go for good, and give its place back."""

    def rest(self) -> None:  # noqa: B027 - an engine may have nothing to give back
        """A map has ended: until the next one begins others may use what the workers need."""

    @abstractmethod
    def close(self) -> None:
        """End all workers, and give all places back. Nothing is left behind."""
