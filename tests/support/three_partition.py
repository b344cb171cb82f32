"""Hard instances of packs whose optimum is known: the reduction of Theorem 2 from 3-Partition."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def theorem_2(numbers: Sequence[int], k: int = 3) -> NDArray[np.float64]:
    """The instance of Theorem 2 for a 3-Partition instance; its optimum is m if that has a solution.

    ``numbers`` are 3m integers; B = sum / m.  Task i takes 1 second on at least a_i processors, else
    1 + 1/a_i; k - 3 further tasks for each triple fill packs of k on B + (k - 3)(B + 1) processors.
    """
    triples = len(numbers) // 3
    bound = sum(numbers) // triples
    processors = bound + (k - 3) * (bound + 1)
    counts = np.arange(1, processors + 1)
    rows = [np.where(counts < a, 1.0 + 1.0 / a, 1.0) for a in numbers]
    rows += [np.maximum((bound + 1) / counts, 1.0)] * (triples * (k - 3))
    return np.array(rows)
