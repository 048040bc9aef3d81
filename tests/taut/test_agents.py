"""The tools of an agent, called by a client of the protocol's own package over standard input and output."""

import asyncio
import json
import os
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import taut

pytest.importorskip("mcp")

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

JOB = {"model": "gpt-tiny", "cluster": "dgx-a100", "global_batch": 8}
Call = Callable[..., Coroutine[Any, Any, Any]]


def with_server(folder: Path, use: Callable[[ClientSession, Call], Coroutine[Any, Any, None]]) -> None:
    """Start the server, and call its tools."""

    async def session() -> None:
        arguments = ["-m", "taut", "mcp", "--folder", str(folder)]
        parameters = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
        async with stdio_client(parameters) as streams, ClientSession(*streams) as client:
            await client.initialize()

            async def call(name: str, **given: Any) -> Any:
                return await client.call_tool(name, given)

            await use(client, call)

    asyncio.run(session())


def answer(result: Any) -> Any:
    """The plain values of an answer that is no error."""
    assert not result.is_error, result.content
    return json.loads(result.content[0].text)


def test_a_plan_is_quoted_with_its_bound_and_checked(tmp_path: Path) -> None:
    """A plan's answer is small and names the file of its certificate, which holds, is explained and is compared."""

    async def use(client: ClientSession, call: Call) -> None:
        tools = {tool.name for tool in (await client.list_tools()).tools}
        assert tools == {"catalog", "plan", "compare", "predict", "explain", "verify"}
        assert "gpt-tiny" in answer(await call("catalog"))["models"]
        found = answer(await call("plan", **JOB, options={"schedules": ["1f1b"]}))
        assert len(json.dumps(found)) < 4000
        path = found["certificate"]["plan_file"]
        written = taut.load_plan(tmp_path / path)
        assert (written.step_time_s, written.lower_bound_s) == (found["step_time_s"], found["lower_bound_s"])
        assert found["lower_bound_s"] <= found["step_time_s"] and found["gap"] == written.gap
        checked = answer(await call("verify", plan_file=path))
        assert checked["holds"] and checked["step_time_s"] == pytest.approx(found["step_time_s"])
        told = (await call("explain", plan_file=path)).content[0].text
        assert told.startswith("gpt-tiny on dgx-a100") and "lower bound" in told
        options = {"schedules": ["1f1b"]}
        current = {"tp": 2, "pp": 2, "dp": 2, "micro_batch": 1}
        beside = answer(await call("compare", **JOB, current=current, options=options))
        assert beside["distance"] > 0 and beside["best"]["certificate"]["plan_file"].startswith("plan-")

    with_server(tmp_path, use)


def test_rows_are_predicted(tmp_path: Path) -> None:
    """A row has step time, band and memory, and a wrong one says what is wrong."""
    row = {"gpu": "A100", "n_gpus": 8, "hidden": 2048, "layers": 24, "heads": 16, "global_batch": 64, "dp": 8}

    async def use(client: ClientSession, call: Call) -> None:
        result = await call("predict", rows=[row, {**row, "dp": 3}])
        right, wrong = (json.loads(each.text) for each in result.content)
        assert right["step_time_low_s"] < right["step_time_s"] < right["step_time_high_s"]
        assert wrong["step_time_s"] is None and "dp" in wrong["error"]

    with_server(tmp_path, use)


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("plan", JOB | {"model": "gpt-tny"}, "did you mean gpt-tiny?"),
    ("plan", JOB | {"options": {"stack": "megatron"}}, "not in the catalog"),
    ("plan", JOB | {"model": "../model.yaml"}, "outside of the server's folder"),
    ("plan", JOB | {"options": {"calibration": "/etc/hostname.yaml"}}, "outside of the server's folder"),
    ("verify", {"plan_file": "../plan.json"}, "outside of the server's folder"),
    ("verify", {"plan_file": "none.json"}, "No such file"),
    ("predict", {"rows": [{}] * 101}, "expected at most 100"),
]


def test_refusals_are_one_line(tmp_path: Path) -> None:
    """What is wrong comes back as an error of the tool in taut's own line, and files outside the folder are refused."""

    async def use(client: ClientSession, call: Call) -> None:
        for tool, given, words in REFUSED:
            result = await call(tool, **given)
            assert result.is_error and words in result.content[0].text, (tool, given)

    with_server(tmp_path, use)
    assert not list(tmp_path.iterdir())
