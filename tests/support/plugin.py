"""The plugin of OpenCode in a Node that looks like OpenCode, with a client of the test's.

What OpenCode would do is done by orders; what the plugin does with the client is told in turn.
"""

import contextlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final, Self

from mbx.hooks.scripts import opencode_plugin
from mbx.paths import Paths
from tests.support.shells import TIMEOUT_S, bare_environment

NODE: Final = shutil.which("node")
"""Where there is none, the plugin is tested in the real client alone."""

_HOST: Final = r"""
import { connect } from "node:net"
import { createInterface } from "node:readline"
const { MbxPlugin } = await import(process.argv[2].slice(2))
const SOCKET = process.argv[3].slice(2)
const tell = (what) => process.stdout.write(JSON.stringify(what) + "\n")
const parents = {}
let manner = "takes"
const client = { session: {
  get: async ({ path }) => ({ data: { id: path.id, parentID: parents[path.id] } }),
  promptAsync: async ({ path, body }) => {
    tell({ prompted: path.id, body })
    if (manner === "throws") throw new Error("gone")
    if (manner === "refuses") return { error: { name: "NotFound" }, response: { status: 404 } }
    if (manner === "breaks") return { error: { name: "Broken" }, response: { status: 500 } }
    if (manner === "takes") await chat(path.id, body.parts[0].text, body.agent)
    return { data: {}, response: { status: 204 } }
  },
} }
const hooks = await MbxPlugin({ client })
async function chat(session, text, agent = "build") {
  const parts = [{ type: "text", text }]
  const message = { id: "msg_1", agent, model: { providerID: "p", modelID: "m", variant: "high" } }
  await hooks["chat.message"]({ sessionID: session }, { message, parts })
  return parts.slice(1).map((part) => part.text)
}
function call({ method, params, hello }) {
  return new Promise((resolve) => {
    const line = connect({ path: SOCKET })
    const say = (id, method, params) =>
      line.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n")
    say(0, "hello", { protocol: 1, client: "test", ...hello })
    say(1, method, params)
    createInterface({ input: line }).on("line", (one) => {
      const told = JSON.parse(one)
      if (told.id === 1) { line.destroy(); resolve(told) }
    })
  })
}
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line)
  if (order.call) tell({ called: await call(order.call) })
  if (order.manner) { manner = order.manner; tell({ done: true }) }
  if (order.helper) { parents[order.helper] = "ses_parent"; tell({ done: true }) }
  if (order.chat) tell({ said: await chat(order.chat, order.text ?? "hello", order.agent) })
  if (order.event) { await hooks.event({ event: order.event }); tell({ done: true }) }
  if (order.dispose) { await hooks.dispose(); tell({ done: true }) }
}
process.exit(0)
"""


class Plugin:
    """One process with the plugin, at the daemon of `home`. Use it in ``with``.

    `words` stand in its command line: ``serve`` makes it a process of many conversations.
    """

    def __init__(self, home: Path, folder: Path, *words: str) -> None:
        paths = Paths.from_environ({"MBX_HOME": str(home)})
        program = folder / "opencode-ai" / "bin" / "opencode.mjs"
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(_HOST)
        plugin = folder / "mbx.mjs"
        plugin.write_text(opencode_plugin(paths))
        assert NODE is not None
        # Its own arguments are settings: the words alone say what sort of process it is.
        argv = [NODE, str(program), f"p={plugin}", f"s={paths.socket_path()}", *words]
        self.process = subprocess.Popen(
            argv,
            env=bare_environment(MBX_HOME=str(home)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def order(self, **order: Any) -> None:
        """Have something done; what comes of it is `told`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()

    def told(self) -> dict[str, Any]:
        """The next that the process tells."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the process with the plugin has ended"
        told = json.loads(line)
        assert isinstance(told, dict)
        return told

    def does(self, **order: Any) -> dict[str, Any]:
        """Have something done that is told at once."""
        self.order(**order)
        return self.told()

    def call(self, method: str, *, hello: Any = None, **params: Any) -> dict[str, Any]:
        """A call of this process to the daemon, such as its tools make; its result."""
        called = self.does(call={"method": method, "params": params, "hello": hello or {}})
        result = called["called"].get("result")
        assert isinstance(result, dict), called
        return result

    def chat(self, session: str, agent: str = "build") -> list[str]:
        """A person prompts a conversation; what the plugin adds to that."""
        said = self.does(chat=session, agent=agent)["said"]
        assert isinstance(said, list)
        return said

    def status(self, session: str, status: str) -> None:
        """The client tells that a conversation is ``idle``, or ``busy``."""
        told = {"sessionID": session, "status": {"type": status}}
        self.does(event={"type": "session.status", "properties": told})

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait(TIMEOUT_S)
        for end in (self.process.stdin, self.process.stdout):
            if end is not None:
                with contextlib.suppress(BrokenPipeError):
                    end.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
