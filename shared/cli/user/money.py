"""Amounts, as people write them and as the wire counts them: whole nano-dollars.

Pure; floats have no part in it.
"""

from __future__ import annotations

import re
from decimal import Decimal

from shared.cli.user.document import Document

PERIODS = ("day", "month", "total")
_NANO = 1_000_000_000
_CAP = re.compile(r"\$?([0-9]{1,9}(?:\.[0-9]{1,9})?)/([a-z]+)")


def parse_cap(text: str) -> Document:
    """`12.50/month` as the spend cap that `/v1/keys` takes.

    Raises:
        ValueError: it is none; the words say how one looks.
    """
    match = _CAP.fullmatch(text)
    if match is None or match[2] not in PERIODS or not Decimal(match[1]):
        raise ValueError(f"write dollars and a period of {', '.join(PERIODS)}: 5/day, 12.50/month")
    return {"nano_usd": int(Decimal(match[1]) * _NANO), "period": match[2]}


def render_usd(nano_usd: int) -> str:
    """Dollars with at least two digits behind the point, and all that are not zero."""
    sign = "-" if nano_usd < 0 else ""
    dollars, nano = divmod(abs(nano_usd), _NANO)
    return f"{sign}${dollars}.{f'{nano:09}'.rstrip('0').ljust(2, '0')}"
