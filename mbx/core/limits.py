"""Every limit of mbx, once. Units are in the names; each has tests at -1, 0 and +1."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself is too heavy for a hook
    from typing import Final

# Names (two labels of the grammar in names.py: an identity or a host).
NAME_MIN_CHARS: Final = 2
NAME_MAX_CHARS: Final = 40

# Text fields, in code points.
SUBJECT_MAX_CHARS: Final = 200
DESCRIPTION_MAX_CHARS: Final = 200
NOTE_MAX_CHARS: Final = 500
DID_KEPT_CHARS: Final = 200
TOPIC_MAX_CHARS: Final = 200
REF_MAX_CHARS: Final = 2_048
PROJECT_MAX_CHARS: Final = 4_096
CARD_MAX_CHARS: Final = 2_000
IDEMPOTENCY_KEY_MAX_CHARS: Final = 128
SESSION_ID_MAX_CHARS: Final = 128
CLI_NAME_MAX_CHARS: Final = 40

# Counts.
ADDRESSES_MAX: Final = 20
RECIPIENTS_MAX: Final = 1_000
REFS_MAX: Final = 20
IDS_MAX: Final = 200
LIST_DEFAULT_ROWS: Final = 20
LIST_MAX_ROWS: Final = 200
ID_CHARS: Final = 26
ID_PREFIX_MIN_CHARS: Final = 6
SUGGESTIONS_MAX: Final = 3
SEARCH_WORDS_MAX: Final = 16
SEARCH_CHARS_MAX: Final = 200
THREAD_MAX_ROWS: Final = 1_000

# Of one policy record.
POLICY_IDENTITIES_MAX: Final = 20
POLICY_SOURCES_MAX: Final = 64
POLICY_PROJECTS_MAX: Final = 20

# Paired hosts.
HOST_NAME_MAX_CHARS: Final = 253
"""Of a name in the DNS, without the last dot (RFC 1035, 2.3.4, as text)."""
ENDPOINT_MAX_CHARS: Final = HOST_NAME_MAX_CHARS + 7
"""A name, its last dot, and `:65535`."""
PEER_ADDRESSES_MAX: Final = 8
DIRECTORY_ENTRIES_MAX: Final = 200
"""Identities in one record of a directory."""
PEER_IDENTITIES_MAX: Final = 10_000
"""Identities of one paired host that are known here, with those that are retired."""
INVITATION_TTL_MS: Final = 10 * 60 * 1000
"""How long a pairing code is good, and how long the two people may take to compare."""
INVITATION_TOLD_MS: Final = 10 * 60 * 1000
"""How long a port that an invitation opened still says that its code is void, and why."""
WRONG_PROOFS_MAX: Final = 5
"""So many wrong proofs burn an invitation."""
PAIRING_FRAME_MAX_BYTES: Final = 16_384
"""Of a pairing, once both sides have proved that they know the code."""
PAIRING_STEP_MS: Final = 10_000
"""For each answer of a pairing before that."""
CERTIFICATE_MAX_BYTES: Final = 1_024
CLOCK_SKEW_TOLD_MS: Final = 60 * 1000
"""Clocks of two hosts that are further apart than this are told of at pairing."""

# Paired hosts: the network.
STRANGERS_MAX: Final = 8
"""Connections that have not shown yet who they are; one more takes the place of the oldest."""
STRANGERS_OF_ADDRESS_MAX: Final = 4
STRANGER_FRAMES_MAX: Final = 50
"""Frames of any kind in a second, before a proof."""
LINKS_MAX: Final = 32
HANDSHAKE_MS: Final = 5_000
"""For TLS and the upgrade together."""
REQUEST_HEAD_MAX_BYTES: Final = 8 * 1024
"""Of the upgrade, all lines of it."""
FRAGMENTS_MAX: Final = 256
"""Frames that one text may come in."""
CHANNEL_WAITING_MAX_BYTES: Final = 4 * 1024 * 1024
"""Texts of one connection that nobody has taken yet, before reading pauses."""
PING_MS: Final = 20_000
PINGS_MISSED_MAX: Final = 2
"""So many pings without a sign of life, and the other side is dead."""
PROBE_MS: Final = 5_000
"""For a sign of life on a link of which its other end behaves as if it had none."""
CLOSE_MS: Final = 2_000
"""For the other side to agree that a connection ends."""
CONNECT_MS: Final = 10_000
"""For one of a host's addresses to answer at all."""
NEXT_ADDRESS_MS: Final = 250
"""How long one address has for itself before the next is tried beside it (RFC 8305, 5)."""
DESCRIPTORS_PERCENT_MAX: Final = 80
"""Of the process's descriptors in use, beyond which nobody is let in from the network."""

# Bytes.
BODY_MAX_BYTES: Final = 262_144
REQUEST_LINE_MAX_BYTES: Final = 2 * 1024 * 1024
"""262,144 control characters grow sixfold as JSON escapes: 1,572,864 bytes and the envelope."""
ANSWER_MAX_BYTES: Final = 1024 * 1024
RECORD_MAX_BYTES: Final = 2 * 1024 * 1024

# Canonical JSON (RFC 8785 narrowed).
JSON_DEPTH_MAX: Final = 8
JSON_KEYS_MAX: Final = 64
JSON_ELEMENTS_MAX: Final = 1_024
JSON_DIGITS_MAX: Final = 16
INTEGER_MAX: Final = 2**53 - 1

# Leases.
LEASE_TIMEOUT_MS: Final = 30 * 60 * 1000
"""Silence of a holder about whom nothing can be proved, before its identity may be claimed."""
SHARED_TIMEOUT_MS: Final = 10 * 60 * 1000
"""Silence of a conversation in a process that hosts many: such a process lives on without it."""
LEASE_RENEW_MS: Final = LEASE_TIMEOUT_MS // 2
"""The signed lease record is signed again at most this often."""
TICKET_TTL_MS: Final = 10 * 60 * 1000
"""How long a bind ticket of a conversation may be handed in."""
TICKETS_OF_CONVERSATION_MAX: Final = 8
TICKETS_MAX: Final = 10_000

# Waking.
WAKE_GAP_MS: Final = 30 * 1000
"""One mailbox's holder is woken at most once in this time; one wake announces all that waits."""
WAKE_DAY_MS: Final = 24 * 60 * 60 * 1000
WAKES_OF_DAY_MAX: Final = 60
"""Of one mailbox."""
WAKE_THREAD_MS: Final = 60 * 60 * 1000
WAKES_OF_THREAD_MAX: Final = 6
"""Messages of one thread that woke anybody within `WAKE_THREAD_MS`: rings end here."""
WAKE_RETRY_MAX_MS: Final = 10 * 60 * 1000
"""The longest pause after a wake that was not taken, and the pause after one of unknown outcome."""
WAKE_TURN_MS: Final = 10 * 1000
"""How long a client that took a wake has until it is seen to have begun a turn."""
WAKE_COMMAND_MS: Final = 20 * 1000
"""For a client's own command that wakes one of its sessions."""
WAKE_LOOK_MS: Final = 1000
"""For what a client's own server on this machine says of a session; other looks wait for it."""
WAKE_MODE_MAX_CHARS: Final = 64
"""Of the word by which a client names how it treats prompts for permission."""
WAKE_NOTICE_MS: Final = 2 * 60 * 1000
"""So long mail waits in a session that nothing reaches until a person is told of it."""
WAKES_AT_ONCE_MAX: Final = 8
"""Sessions that are being woken at the same time."""
WAKE_ANNOUNCED_MAX: Final = 1_000
"""Messages that one wake announces; what is left is announced by the next."""
WAKES_KEPT_MAX: Final = 10_000
"""Wakes that are remembered, of all mailboxes together."""
CLIENT_RECORD_MAX_BYTES: Final = 64 * 1024
"""Of a file in which a client tells of a session, or of its settings."""

# The owner's authority.
TAKEOVER_TTL_MS: Final = 5 * 60 * 1000
"""How long an approved takeover may be applied."""
DRAFT_TTL_MS: Final = 24 * 60 * 60 * 1000
"""How old a signed draft may be when it is brought back, where its kind sets no shorter time."""
DIRECTIVE_IDENTITIES_MAX: Final = 64
"""Identities that one directive of the owner's retires."""
FORWARD_PIECE_ROWS: Final = 500
"""Unacked messages that one transaction hands on; what is left follows in further ones."""
FORWARD_STEPS_MAX: Final = 1_000
"""So many forwards are followed, one after the other."""
PRUNE_DAYS: Final = 30
"""For so long nobody has used what `mbx identity prune` offers to retire, unless told."""
PRUNE_DAYS_MAX: Final = 36_500
POLICY_TTL_MS: Final = 7 * 24 * 60 * 60 * 1000
POLICY_TTL_MAX_MS: Final = 30 * 24 * 60 * 60 * 1000
POLICY_YOLO_TTL_MS: Final = 8 * 60 * 60 * 1000
POLICY_YOLO_TTL_MAX_MS: Final = 7 * 24 * 60 * 60 * 1000
HOPS_MAX: Final = 1_000
"""How often a text may have been passed on; what is passed on oftener is told as this."""
EXPOSURE_MS: Final = 60 * 60 * 1000
"""How long what a conversation read counts as the source of what it writes."""
CLOCK_BACK_MAX_MS: Final = 5 * 60 * 1000
"""A clock that is behind what it once was by more than this proves no term any more."""
CLOCK_KEPT_MS: Final = 5 * 60 * 1000
"""What it once was is written down when it is so much later than what is known of it."""

# Paired hosts: the frames of a link, and how much may be under way.
FRAME_MAX_BYTES: Final = 2 * 1024 * 1024
"""A body of 262,144 control characters grows sevenfold when escaped twice: 1,835,008 bytes."""
HELLO_MAX_BYTES: Final = 4 * 1024
"""Of the first frame: until then nobody has said who speaks."""
PUT_RECORDS_MAX: Final = 64
RECORD_SIGNATURES_MAX: Final = 8
WINDOW_RECORDS_MAX: Final = 256
"""Records that may be offered and not acknowledged on one link."""
WINDOW_MAX_BYTES: Final = 4 * 1024 * 1024
"""Likewise their frames; one record is always let through."""

OFFERED_AT_ONCE_MAX_BYTES: Final = 64 * 1024
"""Messages that wait for a peer count as offered with the send as long as one frame takes them."""

COMMIT_PIECE_BYTES: Final = 64 * 1024
"""Of a peer's records, for one unit of work: whoever else needs the store comes in between."""

# Paired hosts: how long a link waits.
HELLO_DEADLINE_MS: Final = 5_000
"""For the other's first frame, and once more for its word that it goes on."""
ANSWER_DEADLINE_MS: Final = 60_000
"""For any progress while something is offered; longer while much has to go through a slow line."""
SLOWEST_LINE_BYTES_PER_S: Final = 8 * 1024
"""64 kbit/s: what is under way may take as long as a line of this speed needs for it."""
REFUSAL_RETRY_MIN_MS: Final = 1_000
REFUSAL_RETRY_MAX_MS: Final = 60_000
"""A place that was refused for now is offered again within these, whatever the refusal asks."""

# Paired hosts: when a link is tried again.
REDIAL_FIRST_MS: Final = 1_000
REDIAL_MAX_MS: Final = 60_000
"""The longest pause before a try: chosen at random below a bound that doubles up to this."""
REDIAL_REFUSED_MS: Final = 60 * 60 * 1000
"""After a refusal that trying again soon cannot change."""
REDIAL_WOKEN_MS: Final = 1_000
"""Tries that are woken begin at most so often."""
STAND_BY_MS: Final = 5_000
"""How long the host with the greater key id leaves it to the other to dial."""
STABLE_LINK_MS: Final = 10_000
"""A link that stood for so long starts the pauses from the beginning."""
STOP_TOLD_MS: Final = 60 * 60 * 1000
"""The owner is told at most so often that a link has stopped for the same reason."""
PARTED_TOLD_MS: Final = 30 * 24 * 60 * 60 * 1000
"""So long a link that goes on again is listed as one that was stopped (decision 32)."""
CALL_MS: Final = REDIAL_WOKEN_MS
"""What one call of a paired host costs of its credit, which comes back as time passes."""
CALL_BREACH_MS: Final = 20_000
"""And what it costs that a link of its ended by a breach of the protocol."""
CALL_CREDIT_MS: Final = 60_000
"""So much may be used up; who has used more is not let in until some of it is back."""
TOLD_STATE_MS: Final = 60 * 1000
"""What a paired host said of who is there counts for so long after its link has ended."""
REST_TOLD_MS: Final = 5 * 60 * 1000
"""A session that has been idle for so long is told to paired hosts as idle, and how it is reached
when it has been reached so for as long: no turn of a conversation is told."""

# Paired hosts: what waits for them.
QUEUE_MESSAGES_MAX: Final = 100_000
"""Messages that wait for one peer; receipts, directories and owner records do not count."""
QUEUE_MAX_BYTES: Final = 512 * 1024 * 1024
UNOFFERED_MAX_MS: Final = 72 * 60 * 60 * 1000
"""A message that no link was ever handed for so long returns to its sender."""
ABSENCE_MIN_MS: Final = 5 * 60 * 1000
"""A host whose wall clock went on for so long between two looks a minute apart was not there."""
BACK_MIN_MS: Final = 10 * 60 * 1000
"""A host that has started, or was not there, tries for so long before it gives anything up."""
FAREWELL_MAX_MS: Final = 30 * 24 * 60 * 60 * 1000
"""For so long a removed host that was not reached is dialled, to be told that it is removed."""
ANSWERS_WAITING_MAX: Final = 10_000
"""Receipts, refusals and directories that wait for one peer, before what must be refused waits."""
TOMBSTONE_MS: Final = 7 * 24 * 60 * 60 * 1000
"""For so long an acknowledged place can be offered again, and its head be compared."""

# Hooks and status line.
HOOK_DEADLINE_MS: Final = 1_000
"""For everything that a hook does, from its first line on."""
HOOK_INPUT_MAX_BYTES: Final = 4 * 1024 * 1024
"""Of the event that a client writes to a hook; more is left unread."""
HOOK_STOPS_HOUR_MAX: Final = 12
"""So often in an hour mail keeps the turns of one session going; further mail waits."""
HOOK_MISSES_MAX: Final = 1_000_000
"""Counted no further."""
SNAPSHOT_STALE_MS: Final = 10_000
"""A snapshot is believed as long as the daemon gave a sign of life within this."""
SNAPSHOT_BEAT_MS: Final = 3_000
"""How often it gives one: three of them may fail."""
SNAPSHOT_ROWS_MAX: Final = 64
"""Unread messages that are told apart as new or not, the newest."""
SNAPSHOT_MAX_BYTES: Final = 16 * 1024
"""Of one session's file: 64 rows with the longest addresses take 8 KiB."""
SNAPSHOTS_MAX: Final = 1_024
"""Sessions that are written for; twice the connections of one daemon."""

# Daemon.
GROUP_MAX_UNITS: Final = 64
CONNECTIONS_MAX: Final = 512
REQUESTS_IN_FLIGHT_MAX: Final = 64
"""Of one connection; beyond it the daemon stops reading from that connection until answers left."""
PIPE_LINES_MAX: Final = 256
"""Messages of one MCP connection that nobody has looked at yet; more are refused."""
WAITING_MAX_BYTES: Final = 32 * 1024 * 1024
"""Bytes of unanswered requests and partial lines of all connections, before reading is paused."""
STOP_DEADLINE_MS: Final = 5_000
LOG_FILE_MAX_BYTES: Final = 1024 * 1024
LOG_FILES_KEPT: Final = 2
SOCKET_PATH_MAX_BYTES: Final = 107
"""sizeof(sun_path) - 1 on Linux (unix(7))."""
