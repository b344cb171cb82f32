"""What one node has free from now on, and the gaps in it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from math import inf

from dovetail.engine.capacity.free import Fits, Layout, Share
from dovetail.model import Request, Seconds


class NodeTimeline:
    """States of a node over time, piecewise constant; never changed, a change makes a new one.

    Step i lasts from ``times[i]`` to the next one. An *instant*, where ``instants[i]`` is not ``None``, is
    a step of no length and holds what its jobs of no length have; it comes before the other step of its time,
    and stays when they are gone, since what begins at that time does not count in it.
    """

    __slots__ = ("_open", "instants", "states", "times")

    def __init__(
        self, times: list[Seconds], states: list[int], instants: list[tuple[Share, ...] | None]
    ) -> None:
        self.times = times
        self.states = states
        self.instants = instants
        self._open: dict[int, list[int]] = {}  # by the identity of the request's fits

    def _step_at(self, when: Seconds) -> int:
        """The step in force at a time, after its instants."""
        return bisect_right(self.times, when) - 1

    def _open_steps(self, layout: Layout, request: Request, fits: Fits) -> list[int]:
        """Steps in which the request fits, instants left out; remembered."""
        steps = self._open[id(fits)] = []
        for step, state in enumerate(self.states):
            fit = fits[state] if state in fits else layout.fit_state(request, state)
            if fit is not None and self.instants[step] is None:
                steps.append(step)
        return steps

    def next_fitting_time(
        self,
        layout: Layout,
        request: Request,
        fits: Fits,
        duration: Seconds,
        after: Seconds,
        before: Seconds = inf,
    ) -> Seconds:
        """The first time, ``after`` or later and ``before`` another, from which the request fits for so long.

        Infinite if there is none. ``fits`` is the layout's memory of the request.
        """
        times, steps = self.times, self._open.get(id(fits))
        if steps is None:
            steps = self._open_steps(layout, request, fits)
        index = bisect_left(steps, bisect_right(times, after) - 1)
        while index < len(steps):
            step = steps[index]
            start = times[step]
            if start < after:
                start = after
            if start >= before:
                return inf
            blocked = self._blocking_step(layout, request, fits, step, start + duration)
            if blocked is None:
                return start
            index += 1
            if blocked > step:  # whatever begins before that step and reaches it fails too
                index = bisect_left(steps, blocked, index)
        return inf

    def _blocking_step(
        self, layout: Layout, request: Request, fits: Fits, step: int, end: Seconds
    ) -> int | None:
        """What ends a gap that begins in ``step``, before ``end``; ``None`` if nothing does.

        A later step, if the request does not fit there; ``step``, if it only does not fit throughout.
        """
        times, states = self.times, self.states
        least, at, count = states[step], step + 1, len(times)
        while at < count and times[at] < end:
            state = states[at]
            if state != least:
                fit = fits[state] if state in fits else layout.fit_state(request, state)
                if fit is None:
                    return at
                least = layout.common_state(least, state)
                fit = fits[least] if least in fits else layout.fit_state(request, least)
                if fit is None:
                    return step
            at += 1
        return None

    def least_free_state(self, layout: Layout, start: Seconds, duration: Seconds) -> int:
        """The state with what is free from ``start`` on, for so long."""
        times, states = self.times, self.states
        step, end = self._step_at(start), start + duration
        least = states[step]
        step += 1
        while step < len(times) and times[step] < end:
            if states[step] != least:
                least = layout.common_state(least, states[step])
            step += 1
        return least

    def before(self, when: Seconds) -> int:
        """The state just before a time."""
        return self.states[max(0, bisect_left(self.times, when) - 1)]

    def changed(
        self, layout: Layout, now: Seconds, start: Seconds, end: Seconds, share: Share, *, giving: bool
    ) -> NodeTimeline | None:
        """This timeline with a slot taken or given back; ``None`` if it is not free (or was not taken).

        Steps that are over are left out.
        """
        over = self._step_at(now)
        times, states, instants = self.times[over:], self.states[over:], self.instants[over:]
        after = layout.steps(share, giving=giving)
        twin = NodeTimeline(times, states, instants)
        if start >= end:
            return twin if twin._change_instant(layout, now, start, share, giving) else None
        first = twin._split_step(start)
        if end < inf:
            twin._split_step(end)
            last = bisect_left(times, end)
        else:
            last = len(times)
        for step in range(first, last):
            state = states[step]
            moved = after[state] if state in after else layout.step(state, share, giving=giving)
            if moved is None:
                return None
            states[step] = moved
        if giving:
            twin._join_steps(last)
            twin._join_steps(first)
        return twin

    def kept(self, layout: Layout, start: Seconds, end: Seconds, bits: int) -> NodeTimeline:
        """This timeline with reservations of the node from ``start`` to ``end``."""
        twin = NodeTimeline(self.times.copy(), self.states.copy(), self.instants.copy())
        first = twin._split_step(start)
        twin._split_step(end)
        for step in range(first, bisect_left(twin.times, end)):
            twin.states[step] = layout.with_node_kept(twin.states[step], bits)
        return twin

    def _split_step(self, when: Seconds) -> int:
        """The step that begins at this time, after its instants; made if there is none."""
        step = self._step_at(when)
        if self.times[step] != when:
            step += 1
            self.times.insert(step, when)
            self.states.insert(step, self.states[step - 1])
            self.instants.insert(step, None)
        return step

    def _join_steps(self, step: int) -> None:
        """Make one step of two that are alike."""
        if step == 0 or step >= len(self.times) or self.states[step] != self.states[step - 1]:
            return
        if self.instants[step] is None and self.instants[step - 1] is None:
            del self.times[step], self.states[step], self.instants[step]

    def _change_instant(
        self, layout: Layout, now: Seconds, when: Seconds, share: Share, giving: bool
    ) -> bool:
        base = self._split_step(when)
        for step in range(bisect_left(self.times, when), base):
            held = self.instants[step]
            assert held is not None
            if giving and share not in held:
                continue
            after = layout.steps(share, giving=giving)
            state = self.states[step]
            moved = after[state] if state in after else layout.step(state, share, giving=giving)
            if moved is not None:
                self.states[step] = moved
                self.instants[step] = _without_share(held, share) if giving else (*held, share)
                return True
        if giving:
            return when <= now  # over, and left out
        taken = layout.after_take(self.states[base], share)
        if taken is None:
            return False
        self.times.insert(base, when)
        self.states.insert(base, taken)
        self.instants.insert(base, (share,))
        return True


def _without_share(held: tuple[Share, ...], share: Share) -> tuple[Share, ...]:
    at = held.index(share)
    return held[:at] + held[at + 1 :]
