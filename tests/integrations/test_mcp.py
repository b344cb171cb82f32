"""``dovetail mcp``, driven by the SDK's own client over standard input and output."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from services import ANEW, Serving, submit

from dovetail.client.connection import open_connection

mcp = pytest.importorskip("mcp", reason="the SDK is in the environment of `make integrations`")

pytestmark = [pytest.mark.live, pytest.mark.xdist_group("live")]
Tool = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    found = Serving(tmp_path_factory.mktemp("service"), "--cluster", "1x1cpu")
    found.program = ANEW
    found.start().close()
    yield found
    found.stop()


def driven(service: Serving, play: Callable[[Any, Tool], Awaitable[None]], *options: str) -> None:
    """Play with a server of its own; ``call(name, **arguments)`` gives what a tool answers."""

    async def main() -> None:
        words = ["-m", "dovetail", "mcp", "--service", str(service.folder.path), *options]
        start = mcp.StdioServerParameters(
            command=sys.executable, args=words, env=service.environment, cwd=str(service.root)
        )
        async with mcp.Client(mcp.stdio_client(start)) as client:

            async def call(tool: str, /, **arguments: Any) -> dict[str, Any]:
                result = await client.call_tool(tool, arguments)
                if result.is_error:
                    raise RuntimeError(result.content[0].text)
                found: dict[str, Any] = result.structured_content
                return found

            await play(client, call)

    asyncio.run(asyncio.wait_for(main(), 200))


async def ended(call: Tool, *jobs: str) -> list[dict[str, Any]]:
    """How jobs ended; a busy machine takes its time."""
    while (found := await call("wait", jobs=list(jobs)))["left"]:
        pass
    rows: list[dict[str, Any]] = found["jobs"]
    return rows


def test_an_agent_submits_looks_and_cancels(service: Serving) -> None:
    async def play(client: Any, call: Tool) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert tools.keys() == {
            "submit", "wait", "queue", "explain", "whatif", "forecast", "logs", "cancel", "triage", "devices",
        }  # fmt: skip
        assert all(tool.output_schema and tool.description for tool in tools.values())
        answers = {
            name: set(tool.output_schema["properties"]) for name, tool in tools.items() if name != "explain"
        }
        assert answers["wait"] == {"jobs", "left"}, "results have types, and the client knows them"
        assert all(answers.values())
        assert tools["forecast"].output_schema["$defs"]["Foretold"]["properties"]["predicted_end"]["anyOf"][
            0
        ] == {"type": "number"}
        seen = await call("submit", command=["echo", "$HOME; true"], name="hello", dry_run=True)
        (would,) = seen["jobs"]
        assert (seen["ids"], would["command"]) == ([], "echo '$HOME; true'")
        assert would["request"]["cpu"]["cpus"] == 1
        assert would["considered"][0]["basis"] == "no history"
        assert (await call("queue"))["total"] == 0, "a dry run submits nothing"
        (job,) = (await call("submit", command=["echo", "$HOME; true"], name="hello"))["ids"]
        assert await ended(call, job) == [{"id": job, "state": "COMPLETED"}]
        assert (await call("logs", job=job))["text"] == "$HOME; true\n", "no shell reads it"
        long = [(await call("submit", command=["sleep", "1000"]))["ids"][0] for _ in range(2)]
        rows = (await call("queue", own=True))["jobs"]
        assert [row["id"] for row in rows] == long
        assert (await call("forecast", job=long[1]))["jobs"][0]["state"] == "PENDING"
        assert (await call("explain", job=long[1]))["policy"]
        assert (await call("whatif", policy="fcfs"))["jobs"].keys() <= set(long)
        assert (await call("devices"))["nodes"][0]["cpus"] == 1
        found = await call("cancel", jobs=long)
        assert (sorted(found["jobs"]), found["refused"]) == (long, {})
        assert {one["state"] for one in await ended(call, *long)} == {"CANCELLED"}

    driven(service, play)


def test_what_fails_is_explained(service: Serving) -> None:
    async def play(client: Any, call: Tool) -> None:
        words = [sys.executable, "-c", "raise SystemExit('no such file: data.csv')"]
        (job,) = (await call("submit", command=words, name="bad"))["ids"]
        await ended(call, job)
        first = (await call("triage"))["jobs"][0]
        assert (first["id"], first["state"], first["exit_code"]) == (job, "FAILED", 1)
        assert first["stderr"] == "no such file: data.csv\n"
        assert "exit code" in first["advice"]

    driven(service, play)


def test_limits_and_refusals_are_errors_of_the_tool(service: Serving) -> None:
    with open_connection(service.folder.path) as others:
        (id,) = submit(others, {"command": ["sleep", "1000"], "name": "theirs"})

    async def play(client: Any, call: Tool) -> None:
        refused = (await call("cancel", jobs=[id]))["refused"]
        assert refused == {id: "it is no job of this agent"}
        (mine,) = (await call("submit", command=["sleep", "1000"]))["ids"]
        with pytest.raises(RuntimeError, match="found 1 jobs of this agent that have not ended, expected 1"):
            await call("submit", command=["true"])
        for name, arguments, sentence in (
            ("cancel", {"jobs": ["all"]}, 'found "all", expected the number of a job'),
            ("logs", {"job": "999999"}, "999999"),
            ("whatif", {"policy": "nothing"}, "nothing"),
            (
                "submit",
                {"command": ["true"], "folder": "/there/is/none"},
                'folder: found "/there/is/none", expected a folder that exists',
            ),
        ):
            with pytest.raises(RuntimeError, match=sentence):
                await call(name, **arguments)
        assert (await call("cancel", jobs=[mine]))["jobs"] == [mine]

    driven(service, play, "--label", "small", "--most", "1")
    with open_connection(service.folder.path) as others:
        assert others.post("/api/v1/cancel", {"jobs": id})["jobs"] == [id]
