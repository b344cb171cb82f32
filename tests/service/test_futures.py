"""The service from Python: functions and commands as futures."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, as_completed
from pathlib import Path

import numpy as np
import pytest
from services import Serving, serving

import dovetail
from dovetail.client.call import outcome_of, pickle_outcome
from dovetail.client.futures import Client, JobFailed, Untrusted
from dovetail.errors import InputError

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tmp_path_factory.mktemp("service"), "--cluster", "1x2cpu") as found:
        yield found


@pytest.fixture
def client(service: Serving) -> Iterator[Client]:
    with dovetail.Client(service.folder.path) as found:
        yield found


def test_functions_return_and_raise(client: Client) -> None:
    future = client.submit(operator.add, 2, 3)
    assert isinstance(future, Future)
    assert future.result(60) == 5
    failed = client.submit(operator.truediv, 1, 0)
    with pytest.raises(ZeroDivisionError):
        failed.result(60)


def test_closures_prints_and_keywords(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLOUR", "green")
    factor = 7

    def noisy(number: int, *, plus: int) -> tuple[int, str]:
        print("not the result")
        return factor * number + plus, os.environ["COLOUR"]

    assert client.with_options(cpus=2, walltime=60).submit(noisy, 3, plus=2).result(60) == (23, "green")


def test_all_keywords_are_the_functions(client: Client) -> None:
    def train(rate: float, *, name: str, memory: int, array: str = "") -> tuple[float, str, int, str]:
        return rate, name, memory, array

    found = client.submit(train, 0.1, name="resnet", memory=2, array="0-3").result(60)
    assert found == (0.1, "resnet", 2, "0-3")
    two = client.with_options(cpus=2).with_options(name="trial")
    assert two.submit(train, 0.1, name="resnet", memory=2).result(60) == (0.1, "resnet", 2, "")
    assert list(two.map(abs, [-1, -2])) == [1, 2]
    assert [one.result(60) for one in client.with_options(array="0-1").submit(abs, -3)] == [3, 3]
    with pytest.raises(InputError, match="found 'rate', expected one of"):
        client.with_options(rate=0.1)
    assert client.with_options(cpus=2).submit("echo 'a b'", walltime=60).result(60).stdout == b"a b\n"


def test_commands_give_their_output(client: Client) -> None:
    found = client.submit(["sh", "-c", "echo hello"]).result(60)
    assert (found.state, found.exit_code, found.stdout) == ("COMPLETED", 0, b"hello\n")
    with pytest.raises(JobFailed, match="FAILED"):
        client.submit(["false"]).result(60)
    with pytest.raises(InputError, match="beside a command"):
        client.submit(["true"], 3)
    with pytest.raises(InputError, match="cpus"):
        client.submit(["true"], cpus=99)


def test_an_array_is_a_future_for_each_index(client: Client) -> None:
    found = client.submit(["sh", "-c", "echo $DOVETAIL_ARRAY_INDEX"], array="3-4", sbatch=["--qos=a"])
    assert [future.result(60).stdout for future in found] == [b"3\n", b"4\n"]


def test_map_keeps_the_order(client: Client) -> None:
    assert list(client.map(pow, range(6), [2] * 6)) == [n**2 for n in range(6)]
    assert list(client.map(pow, [], [])) == []


def test_await(client: Client) -> None:
    async def main() -> list[int]:
        return list(await asyncio.gather(*(client.submit(abs, -n) for n in range(3))))

    assert asyncio.run(main()) == [0, 1, 2]


def test_cancel(client: Client) -> None:
    long = client.submit(time.sleep, 60)
    others = [client.submit(["sleep", "60"]) for _ in range(3)]
    assert all(future.cancel() for future in (long, *others))
    done = list(as_completed((long, *others), timeout=280))
    assert all(future.cancelled() for future in done)
    assert long.cancel(), "it is cancelled already"


VALUES: list[object] = [
    None, True, 1, -(1 << 80), 0.1, float("inf"), 1j, "a\udcff", b"\0", [1, (2, {3})], {1: {"a": None}},
    frozenset({1}), OSError(2, "no"), np.arange(6.0).reshape(2, 3), np.float32(1.5), np.array(["a", "bc"]),
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_values_travel_as_data_with_their_types(value: object) -> None:
    data = pickle_outcome((True, value))
    assert data.startswith(b"data:")
    returned, found = outcome_of(data, trusted=False)
    assert returned
    assert type(found) is type(value)
    assert repr(found) == repr(value)


class Planted:
    """Runs code where it is unpickled."""

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, ("PLANTED",)


def test_a_pickle_of_somebody_else_is_never_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    harm = pickle_outcome((True, Planted()))
    with pytest.raises(Untrusted, match="Planted"):
        outcome_of(harm, trusted=False)
    for data in (b"", harm.removeprefix(b"pickle:"), b"data:[1]", b'data:[true,{"exception":["open",[]]}]'):
        with pytest.raises(ValueError):  # noqa: PT011 - any: it is no result
            outcome_of(data, trusted=True)
    assert not (tmp_path / "PLANTED").exists()


def test_clients_learn_that_a_service_has_begun_to_admit_others(tmp_path: Path) -> None:
    """A job replaces another's output by a pickle: only its own account's client would read that."""
    service = Serving(tmp_path, "--cluster", "1x1cpu")
    service.start().close()
    with dovetail.Client(service.folder.path) as client:
        assert client.submit(complex, 1).result(60) == 1
        assert isinstance(client.submit(Path, "x").result(60), Path), "a pickle, from a service of our own"
    service.kill()
    service.options = (*service.options, "--listen", "127.0.0.1:0")
    service.start().close()
    with dovetail.Client(service.folder.path) as client:
        assert client.submit(operator.add, 2, 3).result(60) == 5
        with pytest.raises(Untrusted, match=r"job \d+: its result is a pickle"):
            client.submit(Path, "x").result(60)
    service.kill()
    service.options = service.options[:-2]
    service.start().close()
    with dovetail.Client(service.folder.path) as client, pytest.raises(Untrusted):
        client.submit(Path, "x").result(60)
    with dovetail.Client(service.folder.path, trust=True) as client:
        assert isinstance(client.submit(Path, "x").result(60), Path)
    service.stop()
