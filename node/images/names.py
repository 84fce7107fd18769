"""The addresses of a host name, from DNS and nothing else.

Decides how many answers are too many, and which of them are the name's. Must not judge them. `query_dns` asks for the
name as it is: no hosts file, no search list, no `localhost` made up by a library.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Literal

import aiodns
import pycares

from node.images.verdict import EgressRefused, Verdict

MAX_ADDRESSES = 16
_FLAGS = pycares.ARES_FLAG_EDNS | pycares.ARES_FLAG_IGNTC
"""Datagrams alone, which EDNS bounds to 1232 bytes: twice what 16 addresses take. By TCP 64 KiB can come, and
reading them can hold Python for a second."""


class Names:
    """Asks DNS, each time with a client of its own (0.1 ms): c-ares' can't be kept from remembering answers.

    Remembered, a name that had no address yet would have none for an hour, and a quick answer would tell one tenant
    which hosts another's images are on. And what a server answers too late, nobody waits for.
    """

    def __init__(self, nameservers: Sequence[str], limit_s: float) -> None:
        """Ask `nameservers`, or the system's if there are none, for at most `limit_s`."""
        self._nameservers = nameservers or None
        self._limit_s = limit_s
        self.lookups = 0

    async def load_addresses(self, host: str) -> list[str]:
        """Every address of `host`, A before AAAA.

        One kind of record is enough where the other can't be had: what is not known can't be dialled.

        Raises:
            EgressRefused: none, or too many.
        """
        self.lookups += 1
        resolver = aiodns.DNSResolver(self._nameservers, flags=_FLAGS)
        try:
            answers = await asyncio.gather(self._query(resolver, host, "A"), self._query(resolver, host, "AAAA"))
        finally:
            await resolver.close()
        addresses = list(dict.fromkeys(answers[0] + answers[1]))
        if not addresses:
            raise EgressRefused(Verdict.NO_ADDRESS, host)
        if len(addresses) > MAX_ADDRESSES:
            raise EgressRefused(Verdict.TOO_MANY_ADDRESSES, host)
        return addresses

    async def _query(self, resolver: aiodns.DNSResolver, host: str, kind: Literal["A", "AAAA"]) -> list[str]:
        with contextlib.suppress(TimeoutError, aiodns.error.DNSError):
            async with asyncio.timeout(self._limit_s):
                result = await resolver.query_dns(host, kind)
            return find_addresses(host, result.answer)
        return []


def find_addresses(host: str, records: Sequence[pycares.DNSRecord]) -> list[str]:
    """Those of `host` and of the names that it is an alias of; what else an answer holds, nobody asked for."""
    names = {host}
    addresses: list[str] = []
    for record in records:
        if record.record_class != pycares.QUERY_CLASS_IN or _fold(record.name) not in names:
            continue
        if isinstance(record.data, pycares.CNAMERecordData):
            names.add(_fold(record.data.cname))
        elif isinstance(record.data, pycares.ARecordData | pycares.AAAARecordData):
            addresses.append(record.data.addr)
    return addresses


def _fold(name: object) -> str:
    """Names that are no ASCII come as bytes, against what the types say."""
    return str(name).rstrip(".").lower()
