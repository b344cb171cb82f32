"""The service from Python: functions and commands as futures."""

from __future__ import annotations

import asyncio
import operator
import os
import time
from collections.abc import Iterator
from concurrent.futures import Future, as_completed

import pytest
from services import Serving, serving

import dovetail
from dovetail.errors import InputError
from dovetail.service.futures import Client, JobFailed

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

    assert client.submit(noisy, 3, plus=2, cpus=2, walltime=60).result(60) == (23, "green")


def test_commands_give_their_output(client: Client) -> None:
    found = client.submit(["sh", "-c", "echo hello"]).result(60)
    assert (found.state, found.exit_code, found.stdout) == ("COMPLETED", 0, b"hello\n")
    with pytest.raises(JobFailed, match="FAILED"):
        client.submit(["false"]).result(60)
    with pytest.raises(InputError, match="beside a command"):
        client.submit(["true"], 3)
    with pytest.raises(InputError, match="cpus"):
        client.submit(["true"], cpus=99)


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
    done = list(as_completed((long, *others), timeout=60))
    assert all(future.cancelled() for future in done)
    assert long.cancel(), "it is cancelled already"
