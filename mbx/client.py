"""One call to the daemon: connect (starting it on demand), hello and call in one write, repeat.

What a caller may rely on (DESIGN 4.3): a lost connection is repeated for `ANSWER_S` with the same
idempotency key; after that the error is `outcome-unknown` if a change was ever fully written, else
`daemon-unreachable`. Where the system forbids the socket the error is `sandboxed` and nothing is
started. The clock and chance are given by the entry point.
"""

import errno
import os
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from mbx import PROTOCOL, __version__
from mbx.core.errors import EXIT_STATUS, MbxError
from mbx.paths import Paths, printable, quoted
from mbx.wire import (
    WISHES,
    Connection,
    ConnectionLost,
    JsonObject,
    NoAnswer,
    WireError,
    encode,
    introduction,
    request,
)

ANSWER_S: Final = 4.5
"""Connecting, asking and repeating together; with the start of Python an error comes within 5 s."""
PAUSE_FIRST_S: Final = 0.01
PAUSE_LAST_S: Final = 0.1
VERSION_FREE: Final = frozenset({"daemon.status", "daemon.stop"})
"""Methods that a daemon of another protocol serves too."""
_HELLO_ID: Final = 0
_CALL_ID: Final = 1
FORBIDDEN: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})
"""What the system answers where a sandbox, or another user's folder, is in the way."""
_ABSENT: Final = frozenset({errno.ENOENT, errno.ECONNREFUSED, errno.ENOTDIR})
_CODE_OF_RPC_ERROR: Final = {-32602: "usage", -32601: "version-mismatch"}


class NoDaemon(MbxError):
    """No daemon runs, and this caller starts none."""

    def __init__(self, path: str) -> None:
        super().__init__("daemon-unreachable", f"no daemon listens at {path}", "mbx daemon start")


class Clock(Protocol):
    """Seconds of a monotonic clock, and waiting; the module `time` is one."""

    def monotonic(self) -> float:
        """Now."""

    def sleep(self, seconds: float, /) -> None:
        """Wait."""


Starter = Callable[[Paths, Mapping[str, str], Clock], bool]
"""Starts the daemon or waits for another starter; True when this call started one that is ready."""


def key_at(now_ms: int, chance: bytes) -> str:
    """An idempotency key: 48 bits of time and 80 random bits in hex, so keys sort by time."""
    if len(chance) != 10:
        raise ValueError("80 random bits")
    return f"{now_ms & 0xFFFF_FFFF_FFFF:012x}{chance.hex()}"


def hello_params(paths: Paths, environ: Mapping[str, str], *, holder: bool = False) -> JsonObject:
    """What the first line of a connection says.

    The conversation and its token are named only when MBX_CLI and MBX_SESSION are both set;
    `holder` makes the calling process itself the session, as `mbx run` does. MBX_AGENT and MBX_ROLE
    are what the owner wished for this session at its launch.
    """
    if holder:
        return introduction({}) | {"holder": "self"}
    params = introduction(environ)
    cli, session_id = environ.get("MBX_CLI"), environ.get("MBX_SESSION")
    if cli and session_id:
        params["session"] = {"cli": cli, "id": session_id}
        token = _token_of(paths.session_file(cli, session_id))
        if token is not None:
            params["token"] = token
    return params


def _is_of_a_session(method: str) -> bool:
    """Whether a call is an act of the caller's session: only such a one claims what was wished."""
    return method == "session.whoami" or method.startswith("mail.")


def _without_wishes(environ: Mapping[str, str]) -> Mapping[str, str]:
    return {key: text for key, text in environ.items() if key not in WISHES.values()}


class Client:
    """The way of one process to its daemon. Each call is a connection of its own.

    `start` is called when no daemon is there (None: never start one). `answer_s` bounds a call in
    all.
    """

    def __init__(
        self,
        paths: Paths,
        environ: Mapping[str, str],
        clock: Clock,
        *,
        start: Starter | None,
        holder: bool = False,
        answer_s: float = ANSWER_S,
    ) -> None:
        self._paths = paths
        self._environ = environ
        self._clock = clock
        self._start = start
        self._holder = holder
        self._answer_s = answer_s

    def call(self, method: str, params: JsonObject, *, changes: bool) -> JsonObject:
        """The result of one method.

        `changes` says that an unknown outcome matters; `params` then carries the idempotency key.
        Raises MbxError: what the daemon answered, or `outcome-unknown`, `daemon-unreachable`,
        `sandboxed`, `version-mismatch`.
        """
        connection, result = self._carry_out(method, params, changes=changes)
        connection.close()
        return result

    def meet(self, method: str, params: JsonObject) -> tuple[Connection, JsonObject]:
        """As `call`, with the connection that gave the answer, which is the caller's to close."""
        return self._carry_out(method, params, changes=False)

    def hold(self, method: str, params: JsonObject) -> Connection:
        """The connection on which a method was answered: what that began lasts as long as it does.

        Raises MbxError as `call` does.
        """
        return self.meet(method, params)[0]

    def watch(self, until: float) -> JsonObject | None:
        """Wait for mail that wakes: its counts, or None at `until` (monotonic seconds).

        What waits already counts, but for what an agent was told of before. A daemon that was
        started again is asked again. Raises MbxError, `lease-lost` and `no-lease` among them.
        """
        hello = hello_params(self._paths, self._environ)
        lines = encode(request(_HELLO_ID, "hello", hello)) + encode(
            request(_CALL_ID, "mail.watch", {})
        )
        while True:
            attempt = _Attempts(self._clock, self._answer_s, changes=False)
            connection = self._connect(attempt)
            try:
                told = self._ask(connection, lines, "mail.watch", attempt.deadline)
                return told if has_arrived(told) else _first_push(connection, until)
            except WireError as error:
                raise not_a_daemon(self._paths, str(error)) from None
            except ConnectionLost:
                attempt.pause()
            except NoAnswer:
                if self._clock.monotonic() >= until:
                    return None
                raise attempt.failure(self._paths, "mail.watch", {}) from None
            finally:
                connection.close()

    def open_pipe(self, pipe: JsonObject) -> Connection:
        """A connection that has said hello as this pipe: what is written next are its lines.

        Raises MbxError as `call` does.
        """
        hello = hello_params(self._paths, self._environ) | {"pipe": pipe}
        line = encode(request(_HELLO_ID, "hello", hello))
        attempt = _Attempts(self._clock, self._answer_s, changes=False)
        while True:
            try:
                connection = self._connect(attempt)
            except NoAnswer:
                raise attempt.failure(self._paths, "hello", {}) from None
            try:
                connection.send(line, attempt.deadline)
                told = _answer(connection, _HELLO_ID, attempt.deadline)
                _check_hello(told, self._paths, tolerate_version=False)
            except WireError as error:
                connection.close()
                raise not_a_daemon(self._paths, str(error)) from None
            except MbxError as error:
                connection.close()
                if not error.facts.get("stopping"):
                    raise
            except (ConnectionLost, NoAnswer) as lost:
                attempt.lost(written=lost.written)
                connection.close()
            else:
                return connection
            attempt.pause()

    def _carry_out(
        self, method: str, params: JsonObject, *, changes: bool
    ) -> tuple[Connection, JsonObject]:
        """The answer, and the connection that gave it, which is the caller's to close."""
        environ = self._environ if _is_of_a_session(method) else _without_wishes(self._environ)
        hello = hello_params(self._paths, environ, holder=self._holder)
        lines = encode(request(_HELLO_ID, "hello", hello)) + encode(
            request(_CALL_ID, method, params)
        )
        attempt = _Attempts(self._clock, self._answer_s, changes=changes)
        while True:
            try:
                connection = self._connect(attempt)
            except NoAnswer:
                raise attempt.failure(self._paths, method, params) from None
            try:
                return connection, self._ask(connection, lines, method, attempt.deadline)
            except WireError as error:
                connection.close()
                raise not_a_daemon(self._paths, str(error)) from None
            except ConnectionLost as lost:
                attempt.lost(written=lost.written)
            except NoAnswer as late:
                attempt.lost(written=late.written)
                attempt.hung(connection)
            except BaseException:
                connection.close()
                raise
            connection.close()
            attempt.pause()

    def _connect(self, attempt: "_Attempts") -> Connection:
        """A connection to a daemon of this user. Raises MbxError, or NoAnswer at the deadline."""
        path = self._paths.socket_path()
        while True:
            try:
                return _open_own(path, self._clock, attempt.deadline)
            except OSError as error:
                if error.errno in FORBIDDEN:
                    raise sandboxed(path, error) from None
                if error.errno not in _ABSENT | {errno.EAGAIN, errno.EINTR}:
                    raise unreachable(path, error.strerror or str(error)) from None
                absent = error.errno in _ABSENT
            if absent:
                self._start_or_tell(attempt, path)
            attempt.pause()

    def _start_or_tell(self, attempt: "_Attempts", path: str) -> None:
        if self._start is None:
            raise NoDaemon(path)
        try:
            started = self._start(self._paths, self._environ, self._clock)
        except OSError as error:
            if error.errno in FORBIDDEN:
                raise sandboxed(error.filename or path, error) from None
            raise unreachable(path, f"cannot start the daemon: {error}") from None
        attempt.start_ended(started=started)

    def _ask(
        self, connection: Connection, lines: bytes, method: str, deadline: float
    ) -> JsonObject:
        refused_while_writing: ConnectionLost | None = None
        try:
            connection.send(lines, deadline)
        except ConnectionLost as lost:  # an early refusal may still lie in the socket
            refused_while_writing = lost
        try:
            hello = _answer(connection, _HELLO_ID, deadline)
            version_free = method in VERSION_FREE and refused_while_writing is None
            _check_hello(hello, self._paths, tolerate_version=version_free)
            return _result(_answer(connection, _CALL_ID, deadline))
        except MbxError as error:
            if error.facts.get("stopping"):  # it took nothing up: its successor will
                raise ConnectionLost("the daemon is stopping", written=False) from None
            raise
        except ConnectionLost as lost:
            raise (refused_while_writing or lost) from None


def has_arrived(told: JsonObject) -> bool:
    """Whether an answer of `mail.watch` says that there is mail to be told of now."""
    return bool(told.get("arrived", told["waking"]))


def _first_push(connection: Connection, until: float) -> JsonObject | None:
    """What the daemon tells of itself; None at `until`."""
    try:
        told = connection.receive(until)
    except NoAnswer:
        return None
    params = told.get("params")
    if told.get("method") == "lease.lost" and isinstance(params, dict):
        raise error_of(params)
    return params if isinstance(params, dict) else None


class _Attempts:
    """How long one call may still be repeated, and what is known about its outcome."""

    def __init__(self, clock: Clock, answer_s: float, *, changes: bool) -> None:
        self._clock = clock
        self._answer_s = answer_s
        self._changes = changes
        self._pause_s = PAUSE_FIRST_S
        self._written = False
        self._may_extend = True
        self._daemon_pid: int | None = None
        self._was_met = False
        self._runs_already = False
        self.deadline = clock.monotonic() + answer_s

    def lost(self, *, written: bool) -> None:
        """One try ended without an answer."""
        self._was_met = True
        self._written = self._written or written

    def hung(self, connection: Connection) -> None:
        """A daemon took the connection and did not answer in time."""
        peer = connection.peer()
        self._daemon_pid = peer[0] if peer is not None else None

    def start_ended(self, *, started: bool) -> None:
        """A daemon was just started for this call: the time to answer begins now, once.

        Else one of this home runs already.
        """
        self._runs_already = not started
        if started and self._may_extend:
            self._may_extend = False
            self.deadline = self._clock.monotonic() + self._answer_s

    def pause(self) -> None:
        """Wait before the next try, longer each time, not beyond the deadline."""
        left = self.deadline - self._clock.monotonic()
        if left > 0:
            self._clock.sleep(min(self._pause_s, left))
        self._pause_s = min(self._pause_s * 2, PAUSE_LAST_S)

    def failure(self, paths: Paths, method: str, params: JsonObject) -> MbxError:
        """The error after the last try."""
        if self._written and self._changes:
            return outcome_unknown(method, params)
        if self._runs_already and not self._was_met and not _is_served(paths):
            return hidden(paths)
        if self._daemon_pid is None:
            return unreachable(paths.socket_path(), f"no answer within {self._answer_s:g} s")
        state = state_of(self._daemon_pid)
        stopped = " is stopped and" if is_stopped(state) else ""
        who = f"the daemon (process {self._daemon_pid}){stopped}"
        why = f"{who} did not answer within {self._answer_s:g} s"
        return unreachable(paths.socket_path(), why, step_for(self._daemon_pid, state))


def state_of(pid: int) -> str:
    """The state of a process, one letter of proc(5); "?" where nobody can say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read(4_096).rpartition(b")")[2].split()[0].decode("ascii", "replace")
    except (OSError, IndexError):
        return "?"


def is_stopped(state: str) -> bool:
    """Whether that is the state of a process which a signal or a tracer has stopped."""
    return state in ("T", "t")


def step_for(pid: int | None, state: str) -> str:
    """What helps where process `pid`, in this state, should answer or hold nothing, and does not.

    One that is stopped only has to go on; killing is safe, and for one that really hangs. What has
    no number here cannot be signalled from here.
    """
    if pid is None:
        return "mbx daemon status"
    return f"kill -CONT {pid}" if is_stopped(state) else f"kill -9 {pid}"


def outcome_unknown(method: str, params: JsonObject) -> MbxError:
    """The daemon had the whole request and nothing is known about what it did with it."""
    key = params.get("key")
    if method == "mail.send":
        step = f"look with `mbx sent`; the same command with `--key {key}` cannot send it twice"
    else:
        looks = {
            "mail.reply": "mbx sent",
            "mail.ack": "mbx inbox --all",
            "owner.ack": "mbx inbox --all --owner",
        }
        step = f"look with `{looks.get(method, 'mbx whoami')}` before you repeat it"
    message = "the daemon had the request but its answer was lost: it may have been carried out"
    return MbxError("outcome-unknown", message, step, key=key)


def unreachable(path: str, why: str, step: str = "mbx daemon status") -> MbxError:
    """No daemon could be reached at `path`."""
    return MbxError("daemon-unreachable", f"cannot reach the daemon at {path}: {why}", step)


def not_a_daemon(paths: Paths, why: str) -> MbxError:
    """Something else than an mbx daemon answers on our socket."""
    return unreachable(paths.socket_path(), f"what answers there is no mbx daemon ({why})")


def sandboxed(path: str, error: OSError) -> MbxError:
    """The system forbids this process the daemon's files."""
    return MbxError(
        "sandboxed",
        f"{error.strerror} at {path}: a sandbox or another user's folder keeps us from the daemon",
        f"run it outside the sandbox, or allow it the folder {quoted(os.path.dirname(path))}",
    )


def hidden(paths: Paths) -> MbxError:
    """A daemon of this home runs, and its run folder is not the one we see."""
    run = paths.run_dir()
    return MbxError(
        "sandboxed",
        f"the daemon of {paths.home()} is not to be seen in {run}: a sandbox hides its folder, or"
        " it was started with another MBX_RUN",
        f"run it outside the sandbox, or allow it the folder {quoted(run)}",
    )


def error_of(data: JsonObject, fallback_code: str = "daemon-unreachable") -> MbxError:
    """The refusal that a daemon told as ``{code, message, next, …facts}``."""
    facts = {k: v for k, v in data.items() if k not in ("code", "message", "next")}
    code, step = data.get("code", fallback_code), data.get("next")
    message = str(data.get("message") or code)
    if code not in EXIT_STATUS:  # a newer daemon: its words still reach the user
        code, message = "version-mismatch", f"{code}: {message}"
    if code == "version-mismatch" and not step:
        step = "mbx daemon restart"
    return MbxError(code, message, step, **_keywords(facts))


def _keywords(facts: JsonObject) -> JsonObject:
    """Facts that can be given to MbxError by keyword without hiding its own arguments."""
    return {k: v for k, v in facts.items() if k not in ("self", "next_step")}


def _is_served(paths: Paths) -> bool:
    """Whether the run folder we see is, or may be, that of the daemon, which holds it locked."""
    import fcntl

    if os.path.lexists(paths.socket_path()):
        return True
    try:
        folder = os.open(paths.run_dir(), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(folder, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    else:
        return False
    finally:
        os.close(folder)


def _answer(connection: Connection, number: int, deadline: float) -> JsonObject:
    """The answer with this id; notifications before it are passed over."""
    while True:
        message = connection.receive(deadline)
        if "method" in message:
            continue
        if message.get("id") not in (number, None):  # null: the daemon could not read our line
            raise WireError(f"an answer to request {message.get('id')!r}")
        return message


def _result(answer: JsonObject) -> JsonObject:
    error = answer.get("error")
    if error is not None:
        raise _refusal(error)
    result = answer.get("result")
    if not isinstance(result, dict):
        raise WireError("an answer without result")
    return result


def _refusal(error: object) -> MbxError:
    if not isinstance(error, dict):
        raise WireError("an error that is no object")
    given = error.get("data")
    told: JsonObject = dict(given) if isinstance(given, dict) else {}
    told.setdefault("message", error.get("message"))
    number = error.get("code")
    fallback = _CODE_OF_RPC_ERROR.get(number) if isinstance(number, int) else None
    return error_of(told, fallback or "daemon-unreachable")


def _check_hello(answer: JsonObject, paths: Paths, *, tolerate_version: bool) -> None:
    try:
        result = _result(answer)
    except MbxError as error:
        if tolerate_version and error.code == "version-mismatch":
            return
        raise
    protocol = result.get("protocol")
    if protocol != PROTOCOL and not tolerate_version:
        raise MbxError(
            "version-mismatch",
            f"the daemon (mbx {result.get('version')}) speaks protocol {protocol}, "
            f"this mbx {__version__} speaks {PROTOCOL}",
            "mbx daemon restart",
        )
    home = result.get("home")
    if home is not None and home != printable(paths.home()):
        raise MbxError(
            "daemon-unreachable",
            f"the daemon at {paths.socket_path()} serves {home}, not {paths.home()}",
            "unset MBX_RUN, or set it to the run folder of MBX_HOME",
        )


def _open_own(path: str, clock: Clock, deadline: float) -> Connection:
    """A connection to a listener of this user: another one could have made the socket in /tmp."""
    connection = Connection.open(path, clock.monotonic, deadline)
    peer = connection.peer()
    if peer is not None and peer[1] != os.geteuid():
        connection.close()
        raise unreachable(path, f"user {peer[1]} listens there, not user {os.geteuid()}")
    return connection


def _token_of(path: str) -> str | None:
    """The token in a session file; None when there is none that can be read."""
    from mbx.wire import decode

    try:
        # A pipe in its place would be waited for.
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
        with open(os.open(path, flags), "rb") as file:
            token = decode(file.read(64 * 1024)).get("token")
    except (OSError, WireError):
        return None
    return token if isinstance(token, str) else None
