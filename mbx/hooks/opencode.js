// mbx: hooks of OpenCode, which has no commands for them; written by mbx setup.
// It reads what the mbx daemon prepared for a session, and says it once; it never waits for anybody.
// By a line of its own to the daemon it wakes an idle session, when the daemon asks for that.
import { closeSync, constants, fstatSync, openSync, readFileSync, writeFileSync, writeSync } from "node:fs"
import { createHash } from "node:crypto"
import { spawn } from "node:child_process"
import { connect } from "node:net"
import { join } from "node:path"

const FOLDER = @FOLDER@
const PROGRAM = @PROGRAM@
const WHERE = ["--cli", "opencode", "--folder", FOLDER]
const STALE_S = @STALE@
const SOCKET = @SOCKET@
const TURN_MS = @TURN@
const LINE_CHARS = 65536
const SEATS = 32

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

// The daemon hears that a session was told something, where it listens.
function mention(own) {
  try {
    const pipe = openSync(join(FOLDER, "@SAID@"), constants.O_WRONLY | constants.O_NONBLOCK)
    try {
      if (fstatSync(pipe).isFIFO()) writeSync(pipe, own + "\n")
    } finally {
      closeSync(pipe)
    }
  } catch {}
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
  mention(now.own)
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

// -- waking ---------------------------------------------------------------------------------------

// A conversation that can be woken: how it is prompted, what it does, and its line to the daemon. A
// process has one, the last that was prompted; a server has one for each.
const seats = new Map()
const helpers = new Set()
let isShared = false

// A helper of an agent is told nothing: its agent is.
function help(session) {
  if (helpers.size >= 1000) helpers.delete(helpers.values().next().value)
  helpers.add(session)
}

async function sit(session, client, as) {
  const known = seats.get(session)
  if (known) {
    Object.assign(known, { client, as })
    return
  }
  const seat = { session, client, as, state: "busy", line: null, asked: null, last: 1, pause: 1000 }
  seats.set(session, seat)
  const about = await Promise.resolve(client.session.get({ path: { id: session } })).catch(() => null)
  if (about?.data?.parentID) help(session)
  if (helpers.has(session)) return leave(seat)
  for (const other of seats.values()) {
    if (other !== seat && (!isShared || seats.size > SEATS)) leave(other)
  }
  dial(seat)
}

function leave(seat) {
  if (seats.get(seat.session) === seat) seats.delete(seat.session)
  seat.line?.destroy()
}

function dial(seat) {
  if (seats.get(seat.session) !== seat || seat.line) return
  const line = connect({ path: SOCKET })
  seat.line = line
  let kept = ""
  line.unref?.()
  line.setEncoding("utf8")
  line.on("connect", () => {
    say(seat, 0, "hello", { protocol: @PROTOCOL@, client: "opencode", session: { cli: "opencode", id: seat.session } })
    offer(seat)
  })
  line.on("data", (piece) => {
    const lines = (kept + piece).split("\n")
    kept = lines.pop()
    if (kept.length > LINE_CHARS) line.destroy()
    for (const one of lines) hear(seat, one)
  })
  line.on("error", () => {})
  line.on("close", () => {
    seat.line = null
    seat.pause = Math.min(seat.pause * 2, 30000)
    setTimeout(() => dial(seat), seat.pause).unref?.()
  })
}

function say(seat, id, method, params) {
  if (!seat.line || seat.line.destroyed) return
  seat.line.write(JSON.stringify({ jsonrpc: "2.0", id, method, params }) + "\n")
}

function offer(seat) {
  say(seat, 1, "wake.offer", { state: seat.state })
}

function hear(seat, line) {
  let told
  try {
    told = JSON.parse(line)
  } catch {
    return leave(seat)
  }
  if (told.id === 1 && told.result) {
    isShared = isShared || told.result.shared === true
    seat.pause = 1000
  }
  // Refused, or somebody else wakes this session: nothing more is asked of this line.
  if ((told.error && (told.id === 0 || told.id === 1)) || told.method === "wake.over") leave(seat)
  if (told.method === "wake.asked") wake(seat, told.params)
}

// Give the session the daemon's words as a prompt, if it is idle; then tell how that ended.
async function wake(seat, { wake, text }) {
  let outcome = "failed"
  if (seat.state !== "idle" || seat.asked) outcome = "busy"
  else if (/^mbx: [a-z0-9 ;,_-]{1,200}$/.test(text)) outcome = await prompt(seat, text)
  say(seat, ++seat.last, "wake.settle", { wake, outcome })
}

function prompt(seat, text) {
  return new Promise((resolve) => {
    const end = (outcome) => {
      clearTimeout(timer)
      if (seat.asked?.end === end) seat.asked = null
      resolve(outcome)
    }
    const timer = setTimeout(end, TURN_MS, "unknown")
    seat.asked = { text, end }
    const body = { ...seat.as, parts: [{ type: "text", text }] }
    Promise.resolve(seat.client.session.promptAsync({ path: { id: seat.session }, body })).then(
      (told) => {
        const status = told?.response?.status
        if (told?.error) end(status >= 400 && status < 500 ? "failed" : "unknown")
      },
      () => end("unknown"),
    )
  })
}

// How the session was prompted last: a wake must not give a planning agent other powers.
function manner(message) {
  const as = {}
  const model = message?.model
  if (typeof message?.agent === "string") as.agent = message.agent
  if (model?.providerID && model?.modelID) as.model = { providerID: model.providerID, modelID: model.modelID }
  if (typeof model?.variant === "string") as.variant = model.variant
  return as
}

// Whether this prompt is the one that a wake gave.
function isOfWake(session, parts) {
  const asked = seats.get(session)?.asked
  if (!asked || !parts.some((part) => part?.text === asked.text)) return false
  asked.end("admitted")
  return true
}

function does(session, state) {
  const seat = seats.get(session)
  if (!seat || seat.state === state) return
  seat.state = state
  offer(seat)
}

function heed(event) {
  const told = event?.properties
  if (event?.type === "session.status") does(told?.sessionID, told?.status?.type === "idle" ? "idle" : "busy")
  if (event?.type === "session.deleted") {
    const seat = seats.get(told?.sessionID ?? told?.info?.id)
    if (seat) leave(seat)
  }
  if (event?.type !== "session.created") return
  const session = told?.sessionID ?? told?.info?.id
  if (told?.info?.parentID) help(session)
  else meet(session)
}

export const MbxPlugin = async ({ client }) => ({
  event: async ({ event }) => heed(event),
  "chat.message": async (input, output) => {
    if (helpers.has(input?.sessionID) || !Array.isArray(output?.parts)) return
    meet(input?.sessionID)
    const isWoken = isOfWake(input?.sessionID, output.parts)
    if (client?.session) sit(input?.sessionID, client, manner(output?.message))
    const said = (await greeting(input?.sessionID)) || (isWoken ? "" : news(input?.sessionID))
    if (!said) return
    const id = "prt_" + createHash("sha256").update(said + output?.message?.id).digest("hex").slice(0, 24)
    const messageID = output?.message?.id ?? input?.messageID
    output.parts.push({ id, sessionID: input.sessionID, messageID, type: "text", text: said, synthetic: true })
  },
  "experimental.chat.system.transform": async (input, output) => {
    const now = helpers.has(input?.sessionID) ? null : snapshot(input?.sessionID)
    if (now === null || !Array.isArray(output?.system)) return
    if (now.state === "held") output.system.push("mbx: your mailbox identity is " + now.name + ".")
  },
  dispose: async () => {
    for (const seat of seats.values()) if (seat.client === client) leave(seat)
  },
})
