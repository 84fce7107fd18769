"""From a node token to the rules of one request. Pure.

Decides how limits and caps are read. Must not know what they are checked against.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, get_args

from node.limits.limiter import Limits, Period, SpendCap, Subject
from node.limits.prices import Price
from shared.node_token import Caller

_NAMES = frozenset(each.name for each in fields(Limits))


def build_subject(caller: Caller, request_id: str, *, model: str, node: str, price: Price) -> Subject:
    """Who asks for what; a session counts under its user as a key does under its own id.

    Raises:
        ValueError: the edge sent a rule that this node does not know. To pass it over would be to lift it.
    """
    return Subject(
        request_id=request_id,
        org=caller.org,
        project=caller.project,
        key_id=caller.actor_id,
        model=model,
        node=node,
        price=price,
        limits=read_limits(caller.limits),
        cap=None if caller.spend_cap is None else read_cap(caller.spend_cap),
    )


def read_limits(claim: Mapping[str, Any]) -> Limits:
    """The token's `lim`.

    Raises:
        ValueError: an unknown name, or a limit that is no whole number from 0 on.
    """
    if unknown := claim.keys() - _NAMES:
        raise ValueError(f"unknown limits: {', '.join(sorted(unknown))}")
    return Limits(**{name: _count(value) for name, value in claim.items()})


def read_cap(claim: Mapping[str, Any]) -> SpendCap:
    """The token's `cap`.

    Raises:
        ValueError: it is not an amount and a period.
    """
    if claim.keys() != {"nano_usd", "period"} or claim["period"] not in get_args(Period):
        raise ValueError("the spend cap is of another form")
    return SpendCap(_count(claim["nano_usd"]), claim["period"])


def _count(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError("a limit is not a whole number")
    return value
