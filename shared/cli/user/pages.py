"""Lists that a server gives page by page.

Decides when a list is at its end, how long a server that is asked too often is waited for, and that what has come
already is never lost to what comes after. Must not know what is listed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from shared.cli.user.api import Api, Query, Refused, with_query
from shared.cli.user.document import Document, objects_at, text_at
from shared.cli.user.failure import INTERRUPTED, TRY_LATER, Failure

LONGEST_WAIT_S = 60
"""The windows of the limits outside inference are as long."""
MOST_WAITS = 3
"""For one page."""
_MOST_PAGES = 1000


@dataclass(frozen=True, slots=True)
class Listed:
    """What has come, as one page with the cursor of what is left; and why not more, where that was no one's wish."""

    page: Document
    failure: Failure | None = None


def fetch_list(
    api: Api,
    path: str,
    query: Query,
    *,
    limit: int | None,
    page_size: int,
    cursor: str | None,
    sleep: Callable[[float], None],
) -> Listed:
    """Up to `limit` items, of as many pages as that takes; a page may be empty and have a successor.

    Raises:
        Failure: the first page doesn't come.
    """
    items: list[Document] = []
    page: Document = {}
    failure = None
    seen: set[str | None] = {cursor}
    number = 0
    for number in range(_MOST_PAGES):
        asked = page_size if limit is None else min(limit - len(items), page_size)
        wanted = {**query, "limit": asked, "cursor": cursor}
        try:
            page = _fetch_patiently(api, path, wanted, sleep) if number else api.get(path, wanted)
        except (Failure, KeyboardInterrupt) as end:
            if not number:
                raise
            failure = end if isinstance(end, Failure) else Failure("stopped", INTERRUPTED)
            break
        items += objects_at(page, "data")
        cursor = text_at(page, "next_cursor") or None
        if cursor is None or cursor in seen or (limit is not None and len(items) >= limit):
            break
        seen.add(cursor)
    return Listed({**page, "data": items, "next_cursor": cursor} if number else page, failure)


def _fetch_patiently(api: Api, path: str, query: Query, sleep: Callable[[float], None]) -> Document:
    """A page after others: whoever asked for them all has asked for the wait between them, too."""
    for _ in range(MOST_WAITS):
        try:
            return api.ask("GET", with_query(path, query))
        except Refused as refused:
            wait_s = refused.refusal.retry_after_s
            if refused.refusal.exit_code != TRY_LATER or wait_s is None or wait_s > LONGEST_WAIT_S:
                raise refused.refusal.as_failure() from None
            sleep(max(1, wait_s))
    return api.get(path, query)
