"""What a reservation says of its request, as JSON: enough for any node to write the bill.

Decides the form of stored subjects and settlements, in Redis and in the spool alike. Must not know either.
"""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError

from node.limits.limiter import Settlement, Subject
from shared.request_log import RequestRecord, created_ms_of

_SUBJECT = TypeAdapter(Subject)
_SETTLEMENT = TypeAdapter(Settlement)


class Unreadable(Exception):
    """The text is none of ours, or was cut."""


def encode_subject(subject: Subject) -> str:
    """As a reservation stores it."""
    return _SUBJECT.dump_json(subject).decode()


def decode_subject(text: str) -> Subject:
    """What `encode_subject` wrote.

    Raises:
        Unreadable: it wrote something else.
    """
    try:
        return _SUBJECT.validate_json(text)
    except ValidationError:
        raise Unreadable from None


def encode_settlement(settlement: Settlement) -> bytes:
    """As the spool stores it."""
    return _SETTLEMENT.dump_json(settlement)


def decode_settlement(text: bytes) -> Settlement:
    """What `encode_settlement` wrote.

    Raises:
        Unreadable: it wrote something else.
    """
    try:
        return _SETTLEMENT.validate_json(text)
    except ValidationError:
        raise Unreadable from None


def running_record(subject: Subject) -> RequestRecord:
    """The log's entry while the request runs."""
    return RequestRecord(
        id=subject.request_id,
        created_ms=created_ms_of(subject.request_id),
        key_id=subject.key_id,
        project=subject.project,
        model=subject.model,
        node=subject.node,
        outcome="running",
        price=subject.price.version,
    )
