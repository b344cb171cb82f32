"""Marks in texts that many jobs share: what only the start of a job shows, filled in then.

A mark is a null character, perhaps a width, and a letter. Paths and variables of a `Launch` hold them, so
that the jobs of an array, of which there may be 100,000, share one.

=====  ===========================================================  =====  =================================
``j``  number of the job; where jobs of arrays have none, ``i``     ``N``  its nodes, as a hostlist
``A``  number of the array, of another job its own                  ``H``  short name of its first node
``a``  index in the array, of another job `NO_INDEX`                ``K``  number of its nodes
``b``  last digit of the index                                      ``C``  CPUs on its first node
``i``  id of the job: number and index                              ``P``  CPUs of all nodes: ``4(x2),3``
``r``  how often it has begun again; empty: never                   ``g``  devices on its first node
``p``  its partition                                                ``G``  their places there
``S``  when it begins, seconds since 1970                           ``E``  when its walltime ends; empty: none
=====  ===========================================================  =====  =================================
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import accumulate, pairwise

NO_INDEX = "4294967294"
"""The index of a job that is in no array, as Slurm has it."""
# A null character cannot be in a path or a variable, so no text of a user's is taken for a mark.
_MARK = re.compile("\0([0-9]{0,2})([A-Za-z])")
_SPAN = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)


def fill_marks(text: str, value: Callable[[str], str]) -> str:
    """The text with each mark filled in; ``value`` gives what a letter stands for.

    A width fills numbers up with zeros.

    >>> fill_marks("run-\\x004j-\\0a", {"j": "7", "a": "3"}.__getitem__)
    'run-0007-3'
    """
    if "\0" not in text:
        return text
    return _MARK.sub(lambda mark: value(mark[2]).zfill(int(mark[1] or 0)), text)


def job_marks(job: str, indices: str, place: int = 0) -> Mapping[str, str]:
    """What the id of a job alone gives: its number, that of its array, its index.

    ``indices`` are those of its array, such as ``0-15:4``: the jobs of array 12 have the numbers from 12 on,
    in the order of their indices. Without them they have no numbers of their own.
    A job of a run, whose id is a name, has its ``place`` among its jobs, from 1.
    """
    number, _, index = job.partition("_")
    own = job
    if not number.isdecimal():
        number, index, own = str(place + 1), "", str(place + 1)
    elif index and indices and index.isdecimal():
        own = str(int(number) + place_of(int(index), indices))
    return {
        "i": job,
        "j": own,
        "A": number,
        "a": index or NO_INDEX,
        "b": (index or NO_INDEX)[-1:],
    }


def own_number(job: str, indices: str) -> str:
    """The number of a job of a service: its own where it is one of an array with ``indices``."""
    return job_marks(job, indices)["j"]


def place_of(index: int, indices: str) -> int:
    """The place of an index among those of an array, from 0.

    >>> place_of(8, "0-15:4"), place_of(20, "20,3-5")
    (2, 3)
    """
    firsts, spans, before = _index_spans(indices)
    at = bisect_right(firsts, index) - 1
    return before[at] + (index - spans[at].start) // spans[at].step if at >= 0 else 0


def count_indices(indices: str) -> int:
    """How many indices there are."""
    _, spans, before = _index_spans(indices)
    return before[-1] + len(spans[-1])


# Cached: each job of an array of a hundred thousand looks its place up in the same spans.
@lru_cache(maxsize=64)
def _index_spans(indices: str) -> tuple[list[int], list[range], list[int]]:
    """The first index of each span, the spans, and how many indices stand before each; in ascending order."""
    spans: list[range] = []
    for part in indices.partition("%")[0].split(","):
        match = _SPAN.fullmatch(part.strip())
        assert match is not None, "indices were checked when they came in"
        first = int(match[1])
        spans.append(range(first, int(match[2] or first) + 1, int(match[3] or 1)))
    spans.sort(key=lambda span: span.start)
    # Spans that interleave: each index alone.
    if any(one[-1] >= two.start for one, two in pairwise(spans)):
        spans = [range(i, i + 1) for i in sorted(set().union(*map(set, spans)))]
    before = [0, *accumulate(map(len, spans))][:-1]
    return [span.start for span in spans], spans, before
