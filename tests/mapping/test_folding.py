from __future__ import annotations

import operator
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dovetail.mapping.folding import Fold, Tree, fold_run


def cuts(count: int, seed: int) -> list[tuple[int, int]]:
    """Batches of neighbours, in a random order."""
    chance = random.Random(seed)
    found, at = [], 0
    while at < count:
        step = chance.randint(1, 9)
        found.append((at, min(count, at + step)))
        at += step
    chance.shuffle(found)
    return found


@given(st.integers(1, 200), st.integers(0, 5))
def test_the_order_of_the_items_is_kept_whatever_comes_first(count: int, seed: int) -> None:
    """Joining texts is associative, and not commutative."""
    tree = Tree(operator.add)
    fold = Fold(operator.add)
    for low, high in cuts(count, seed):
        tree.add(fold.fold_values(low, [f"{i}," for i in range(low, high)]))
    assert tree.result() == "".join(f"{i}," for i in range(count))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=150), st.integers(0, 9), st.integers(0, 9))
def test_sums_of_floats_do_not_depend_on_batches_or_arrival(
    values: list[float], one: int, other: int
) -> None:
    def total(seed: int) -> float:
        tree = Tree(operator.add)
        for low, high in cuts(len(values), seed):
            tree.add(fold_run(operator.add, low, values[low:high]))
        return float(tree.result())

    assert total(one) == total(other) == pytest.approx(sum(values), abs=1e-3)


def test_a_batch_becomes_few_nodes() -> None:
    assert fold_run(operator.add, 0, [1] * 16) == [(4, 0, 16)]
    assert fold_run(operator.add, 3, [1] * 6) == [(0, 3, 1), (2, 1, 4), (0, 8, 1)]
    assert len(fold_run(operator.add, 12345, [1] * 100_000)) < 40


@given(st.integers(1, 60), st.sets(st.integers(0, 59)))
def test_items_without_a_value_are_left_out(count: int, holes: set[int]) -> None:
    tree = Tree(operator.add)
    for i in range(count):
        if i in holes:
            tree.skip(i)
        else:
            tree.add([(0, i, [i])])
    kept = [i for i in range(count) if i not in holes]
    assert tree.empty is not bool(kept)
    if kept:
        assert tree.result() == kept


@given(st.integers(1, 120), st.integers(0, 5))
def test_by_key_values_come_in_the_order_of_the_items(count: int, seed: int) -> None:
    fold = Fold(operator.add, by_key=True)
    parts = Tree(fold.both)
    call = fold.prepare_call(lambda i: [(i % 3, [i]), (i % 3, [-i]), ("all", [i])])
    for low, high in cuts(count, seed):
        parts.add(fold.fold_values(low, [call(i) for i in range(low, high)]))
    found = parts.result()
    assert found["all"] == list(range(count))
    for key in range(min(3, count)):
        assert found[key] == [v for i in range(key, count, 3) for v in (i, -i)]


def test_a_mapping_is_pairs_too_and_one_item_alone_is_a_run() -> None:
    fold = Fold(operator.add, by_key=True)
    parts = Tree(fold.both)
    call = fold.prepare_call(lambda _: {"a": 1})
    parts.add(fold.fold_values(0, [call(None)]))
    parts.skip(1)
    parts.add(fold.fold_values(2, [call(None)]))
    assert parts.result() == {"a": 2}
