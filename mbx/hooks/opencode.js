// mbx: hooks of OpenCode, which has no commands for them; written by mbx setup.
// It reads what the mbx daemon prepared for a session, and says it once; it never waits for anybody.
import { readFileSync, writeFileSync } from "node:fs"
import { createHash } from "node:crypto"
import { spawn } from "node:child_process"
import { join } from "node:path"

const FOLDER = @FOLDER@
const PROGRAM = @PROGRAM@
const WHERE = ["--cli", "opencode", "--folder", FOLDER]
const STALE_S = @STALE@

function text(name) {
  try {
    return readFileSync(join(FOLDER, name), "utf8").slice(0, @BYTES@)
  } catch {
    return ""
  }
}

function isFresh() {
  const beat = text("@FRESH@").trim()
  let now
  try {
    now = Math.floor(parseFloat(readFileSync("/proc/uptime", "utf8")))
  } catch {
    return false
  }
  return /^[0-9]+$/.test(beat) && now - Number(beat) <= STALE_S && now >= Number(beat)
}

// The process's own place, where it has one conversation; else the conversation's.
function own() {
  try {
    const stat = readFileSync("/proc/self/stat", "utf8")
    return process.pid + "-" + stat.slice(stat.lastIndexOf(") ") + 2).split(" ")[19]
  } catch {
    return ""
  }
}

function snapshot(session) {
  if (!isFresh()) return null
  let found = own() ? text(own()) : ""
  if (found.split(" ")[2] === "shared" || !own()) {
    const name = createHash("sha256").update("opencode\0" + session).digest("hex")
    found = text(name)
  }
  const lines = found.split("\n")
  const head = lines[0].split(" ")
  if (lines.length < 4 || head.length !== 8 || head[0] !== "@VERSION@" || head[1] !== "opencode") return null
  if (own() && head[3] !== own() && !head[3].startsWith(own() + "-")) return null
  const rows = lines.slice(3, -1).map((line) => line.split(" "))
  return { state: head[2], own: head[3], newest: Number(head[4]), unread: head[6], name: head[7], rows }
}

// What is new since it was last said, and that it is said now; "" for nothing.
function news(session) {
  const now = snapshot(session)
  if (now === null || now.state !== "held" || !(now.newest > 0)) return ""
  const kept = now.own + "@TOLD@"
  const told = Number(/^[0-9]*/.exec(text(kept))[0] || 0)
  if (now.newest <= told) return ""
  const fresh = now.rows.filter((row) => Number(row[1]) > told)
  try {
    writeFileSync(join(FOLDER, kept), String(now.newest) + " 0 0\n", { mode: 0o600 })
  } catch {
    return ""
  }
  const senders = [...new Set(fresh.map((row) => row[3]).filter((one) => /^[a-z0-9@.-]+$/.test(one)))]
  const more = senders.length > 3 ? " and " + (senders.length - 3) + " more" : ""
  const from = senders.length ? " from " + senders.slice(0, 3).join(", ") + more : ""
  const what = fresh.length ? fresh.length + " new" : "new mail"
  return "mbx: " + what + " for " + now.name + from + ", " + now.unread + " unread. Next: mbx_inbox."
}

// The daemon is told in a process of its own, which ends by itself within a second and says what the
// session is to be told.
function tell(event, session) {
  return new Promise((resolve) => {
    let said = ""
    try {
      const child = spawn(PROGRAM[0], [...PROGRAM.slice(1), event, ...WHERE, "--own", own()], {
        stdio: ["pipe", "pipe", "ignore"],
      })
      child.on("error", () => resolve(""))
      child.on("close", () => resolve(said.trim()))
      child.stdout.on("data", (piece) => (said += piece))
      child.stdin.on("error", () => {})
      child.stdin.end(JSON.stringify({ session_id: session, hook_event_name: event }))
    } catch {
      resolve("")
    }
    setTimeout(() => resolve(""), 1500).unref?.()
  })
}

const greetings = new Map()

function meet(session) {
  if (typeof session !== "string" || greetings.has(session)) return
  if (greetings.size >= 1000) greetings.delete(greetings.keys().next().value)
  greetings.set(session, tell("session.created", session))
}

async function greeting(session) {
  const said = await (greetings.get(session) ?? "")
  if (said) greetings.set(session, "")
  return said
}

export const MbxPlugin = async () => ({
  event: async ({ event }) => {
    if (event?.type === "session.created") meet(event.properties?.sessionID ?? event.properties?.info?.id)
  },
  "chat.message": async (input, output) => {
    meet(input?.sessionID)
    const said = (await greeting(input?.sessionID)) || news(input?.sessionID)
    if (!said || !Array.isArray(output?.parts)) return
    const id = "prt_" + createHash("sha256").update(said + output?.message?.id).digest("hex").slice(0, 24)
    const messageID = output?.message?.id ?? input?.messageID
    output.parts.push({ id, sessionID: input.sessionID, messageID, type: "text", text: said, synthetic: true })
  },
  "experimental.chat.system.transform": async (input, output) => {
    const now = snapshot(input?.sessionID)
    if (now === null || !Array.isArray(output?.system)) return
    if (now.state === "held") output.system.push("mbx: your mailbox identity is " + now.name + ".")
  },
})
