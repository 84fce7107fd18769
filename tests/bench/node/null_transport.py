"""One HTTP request to a server's protocol without a socket, and the time at which its answer was complete.

Decides where a measurement ends: with the last bytes that are handed to the transport. The kernel's part is the same
for every server and in no figure.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from typing import Any

_LAST_CHUNK = b"0\r\n\r\n"
_WITHIN_S = 300


class NullTransport(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.ended_s = 0.0
        self.ended = asyncio.Event()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take it."""
        self.written.append(bytes(data))
        if self.written[-1] == _LAST_CHUNK or self.written[-1].endswith(b"\r\n" + _LAST_CHUNK):
            self.ended_s = time.process_time()
            self.ended.set()

    def get_write_buffer_size(self) -> int:
        """A client that reads as fast as it can."""
        return 0

    def is_closing(self) -> bool:
        """Never."""
        return False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """There is no socket."""
        del name
        return default

    def pause_reading(self) -> None:
        """Nothing comes."""

    def resume_reading(self) -> None:
        """Nothing comes."""

    def close(self) -> None:
        """Nothing to close."""

    def abort(self) -> None:
        """Nothing to abort."""


async def exchange(
    protocol: asyncio.Protocol, path: str, headers: Mapping[str, str], body: bytes
) -> tuple[float, bytes]:
    """Ask, and return the process's CPU time at the answer's end with all bytes of the answer."""
    lines = [f"POST {path} HTTP/1.1", "Host: bench", "Content-Type: application/json", f"Content-Length: {len(body)}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    transport = NullTransport()
    protocol.connection_made(transport)
    protocol.data_received("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
    await asyncio.wait_for(transport.ended.wait(), _WITHIN_S)
    protocol.connection_lost(None)
    return transport.ended_s, b"".join(transport.written)
