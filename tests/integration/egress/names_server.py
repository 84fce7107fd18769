"""A DNS server for tests, whose zone is a case of the corpus.

`{"A": [..], "AAAA": [..], "CNAME": ".."}`, `"servfail"`, `"drop"`, `{}` for a name without addresses, nothing for a
name that isn't; `{"A": {"sequence": [[..], [..]]}}` answers each query from the next list. Every TTL is an hour, and
nobody may heed it: tests change their zones.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from ipaddress import IPv6Address
from typing import Any

from dnslib import AAAA, CNAME, QTYPE, RCODE, RR, A, DNSError, DNSRecord
from dnslib.server import BaseResolver, DNSHandler, DNSLogger, DNSServer

TTL_S = 3600
Zone = dict[str, Any]


class ZoneResolver(BaseResolver):  # type: ignore[misc]
    """Answers from `zone` and counts what it was asked."""

    def __init__(self) -> None:
        self.zone: Zone = {}
        self.asked: Counter[tuple[str, str]] = Counter()

    def load(self, zone: Zone) -> None:
        """Begin another case."""
        self.zone, self.asked = zone, Counter()

    def resolve(self, request: DNSRecord, handler: Any) -> DNSRecord | None:
        """One query, called in a thread of the server."""
        name, kind = str(request.q.qname).rstrip(".").lower(), QTYPE[request.q.qtype]
        self.asked[name, kind] += 1
        reply = request.reply()
        entry = self.zone.get(name)
        if entry == "drop":
            raise DNSError("dropped")  # the handler sends no reply then
        if entry == "servfail":
            reply.header.rcode = RCODE.SERVFAIL
        elif entry is None:
            reply.header.rcode = RCODE.NXDOMAIN
        else:
            self._answer(reply, name, kind, entry)
        return reply

    def _answer(self, reply: DNSRecord, name: str, kind: str, entry: Any) -> None:
        if kind in entry.get("drop", ()):
            raise DNSError("dropped")
        time.sleep(entry.get("delay_s", 0))
        seen = {name}
        while (target := entry.get("CNAME")) and target not in seen and len(seen) < 20:
            reply.add_answer(RR(name, QTYPE.CNAME, ttl=TTL_S, rdata=CNAME(target)))
            seen.add(target)
            name, entry = target, self.zone.get(target) or {}
        records = entry.get(kind, [])
        if isinstance(records, dict):
            sequence = records["sequence"]
            records = sequence[min(self.asked[name, kind], len(sequence)) - 1]
        for address in records:
            data = A(address) if kind == "A" else AAAA(tuple(IPv6Address(address).packed))
            reply.add_answer(RR(name, getattr(QTYPE, kind), ttl=TTL_S, rdata=data))


class Handler(DNSHandler):  # type: ignore[misc]
    """Sends what doesn't fit into a datagram by TCP, as real servers do."""

    udplen = 1232

    def get_reply(self, data: bytes) -> bytes:
        """dnslib leaves the question out of what it cuts short, which c-ares takes for another query's answer."""
        packed: bytes = super().get_reply(data)
        reply = DNSRecord.parse(packed)
        if reply.header.tc:
            reply.add_question(DNSRecord.parse(data).q)
            packed = reply.pack()
        return packed


class NamesServer:
    """Listens on UDP and TCP, at one port of an address of its own."""

    def __init__(self, host: str) -> None:
        self.resolver = ZoneResolver()
        silent = DNSLogger(log="", logf=lambda text: None)
        silent.log_error = lambda *_: None
        self._udp = DNSServer(self.resolver, address=host, port=0, logger=silent, handler=Handler)
        port = self._udp.server.server_address[1]
        self._tcp = DNSServer(self.resolver, address=host, port=port, tcp=True, logger=silent, handler=Handler)
        self.address = f"{host}:{port}"
        self.faults: list[BaseException | None] = []
        for server in (self._udp, self._tcp):
            server.server.handle_error = lambda *_: self.faults.append(sys.exc_info()[1])
            server.start_thread()

    def close(self) -> None:
        """Stop both threads."""
        for server in (self._udp, self._tcp):
            server.stop()
            server.server.server_close()
            server.thread.join(5)
