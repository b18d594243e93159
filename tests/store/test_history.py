"""Threads and searches in the store: ids that share their first bytes, and stages."""

from mbx.core.ids import id8
from mbx.core.keys import crockford
from mbx.store import history, messages, search
from mbx.store.search import Filters
from tests.store.test_rows import Store, new_message, sealed


def test_a_message_in_somebody_elses_thread_with_the_same_first_bytes_is_not_shown() -> None:
    store = Store()
    ana = store.identity("ana")
    first, twin = b"\xff" * 8 + b"a" * 24, b"\xff" * 8 + b"b" * 24
    assert id8(first) == id8(twin)
    for digest in (first, twin):
        message = new_message(ana, record=sealed("x", digest), thread=crockford(digest))
        store.do(lambda tx, m=message: messages.add(tx, m, [(ana.no, False)]))  # type: ignore[misc]
    shown = store.do(
        lambda tx: history.thread_page(tx, ana.no, crockford(first), after_no=0, rows=9)
    )
    assert [message.id for message in shown] == [crockford(first)]
    store.connection.close()


def test_what_one_only_sent_has_no_stage_of_ones_own() -> None:
    store = Store()
    ana, ben = store.identity("ana"), store.identity("ben")
    store.do(lambda tx: messages.add(tx, new_message(ana, "word"), [(ben.no, False)]))
    store.do(lambda tx: search.index_some(tx, 9))
    stages = [
        store.do(
            lambda tx, no=who.no: history.found_page(  # type: ignore[misc]
                tx, no, '"word"', Filters(), before_no=9, rows=9
            )
        )[0].stage
        for who in (ana, ben)
    ]
    assert stages == [None, 2]
    store.connection.close()
