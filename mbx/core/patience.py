"""How often one paired host may call: a credit of time that calls use up, and breaches more.

A call costs what a host that keeps the rules earns in between; a link that ends by a breach costs
twenty times that, since what led to it may have been two megabytes of nonsense. Whoever has used up
the credit is let in again as time passes; nothing of it is ever counted against others.
"""

from mbx.core.limits import CALL_BREACH_MS, CALL_CREDIT_MS, CALL_MS


def may_call(due_ms: int, now_ms: int) -> bool:
    """Whether a host is let in; `due_ms` (monotonic) is when its credit is whole again."""
    return due_ms - now_ms <= CALL_CREDIT_MS


def after_call(due_ms: int, now_ms: int) -> int:
    """When its credit is whole again, once it has called."""
    return max(due_ms, now_ms) + CALL_MS


def after_breach(due_ms: int, now_ms: int) -> int:
    """The same, once a link of its ended because it broke the protocol."""
    return max(due_ms, now_ms) + CALL_BREACH_MS
