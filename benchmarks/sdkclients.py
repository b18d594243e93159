"""Clients of the official MCP SDK, all in this process, that call one tool again and again.

Run as a program: its argument is a JSON object with `argv` and `env` of the server that each client
starts, `tool`, `arguments`, `clients`, and `calls` of each. It prints the median time of a call in
ms and the calls a second of all, as JSON.
"""

import asyncio
import json
import statistics
import sys
import time
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client


async def measure(asked: dict[str, Any]) -> dict[str, float]:
    """All clients begin at once, when each has made a first call."""
    begin, ready = asyncio.Event(), asyncio.Semaphore(0)
    ends = [asyncio.create_task(_client(asked, begin, ready)) for _ in range(asked["clients"])]
    for _ in ends:
        await ready.acquire()
    begun = time.perf_counter()
    begin.set()
    took = [one for times in await asyncio.gather(*ends) for one in times]
    each_s = (time.perf_counter() - begun) / len(took)
    return {"p50_ms": statistics.median(took) * 1_000, "rate": 1 / each_s}


async def _client(
    asked: dict[str, Any], begin: asyncio.Event, ready: asyncio.Semaphore
) -> list[float]:
    program, *arguments = asked["argv"]
    server = StdioServerParameters(command=program, args=arguments, env=asked["env"])
    async with stdio_client(server) as ends, ClientSession(*ends) as session:
        await session.initialize()
        await _call_s(session, asked)
        ready.release()
        await begin.wait()
        return [await _call_s(session, asked) for _ in range(asked["calls"])]


async def _call_s(session: ClientSession, asked: dict[str, Any]) -> float:
    begun = time.perf_counter()
    result = await session.call_tool(asked["tool"], asked["arguments"])
    took_s = time.perf_counter() - begun
    if result.is_error:
        raise RuntimeError(f"the tool refused: {result.content}")
    return took_s


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(measure(json.loads(sys.argv[1])))) + "\n")
