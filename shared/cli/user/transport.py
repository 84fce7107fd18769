"""One HTTP exchange with a server.

Decides how long to wait, that certificates are checked, that no redirect is followed (the key would go along), and in
which words a broken connection is told. The standard library's client is enough for one request a command, starts in
20 ms, and is no dependency. Must not know any route, nor what a status means.
"""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from shared.cli.user.address import Address
from shared.cli.user.failure import UNREACHABLE, Failure
from shared.cli.user.proxy import find_proxy

CONNECT_S = 10.0
ANSWER_S = 60.0
MOST_BYTES = 64 * 1024 * 1024
"""Of one answer that is no stream: more than any page of anything, and less than a laptop's memory."""
_CHUNK_BYTES = 65_536


@dataclass(frozen=True, slots=True)
class Request:
    """What is sent. `target` is the path below `/v1`'s prefix, with the query."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes | None = None


class Answer:
    """A head that has come, and the body behind it. Names of headers are lower-case."""

    def __init__(self, response: http.client.HTTPResponse, address: Address) -> None:
        self.status = response.status
        self.headers = {name.lower(): value for name, value in response.getheaders()}
        self._response = response
        self._address = address

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes.

        Raises:
            Failure: the connection broke, or nothing came for too long.
        """
        while True:
            with telling_faults(self._address):
                chunk = self._response.read1(_CHUNK_BYTES)
            if not chunk:
                return
            yield chunk

    def read(self, most_bytes: int = MOST_BYTES) -> bytes:
        """The whole body.

        Raises:
            Failure: as `chunks`, or it is too long.
        """
        held = bytearray()
        for chunk in self.chunks():
            held += chunk
            if len(held) > most_bytes:
                raise Failure(f"{self._address.authority} answers with more than {most_bytes} bytes")
        return bytes(held)


@contextlib.contextmanager
def exchange(
    address: Address, request: Request, *, head_s: float = ANSWER_S, silence_s: float = ANSWER_S
) -> Iterator[Answer]:
    """Send a request and wait `head_s` for the head; between two parts of the body at most `silence_s` may pass.

    Raises:
        Failure: nobody answers.
    """
    connection = _prepare(address)
    try:
        with telling_faults(address):
            response = _send(connection, address, request, head_s=head_s, silence_s=silence_s)
        with response:
            yield Answer(response, address)
    finally:
        connection.close()


def _prepare(address: Address) -> http.client.HTTPConnection:
    if address.scheme == "http":
        return http.client.HTTPConnection(address.host, address.port, timeout=CONNECT_S)
    context = ssl.create_default_context()
    proxy = find_proxy(address)
    if proxy is None:
        return http.client.HTTPSConnection(address.host, address.port, timeout=CONNECT_S, context=context)
    connection = http.client.HTTPSConnection(proxy.host, proxy.port, timeout=CONNECT_S, context=context)
    connection.set_tunnel(address.host, address.port, proxy.headers)
    return connection


def _send(
    connection: http.client.HTTPConnection, address: Address, request: Request, *, head_s: float, silence_s: float
) -> http.client.HTTPResponse:
    connection.connect()
    sock: socket.socket = connection.sock  # the connection lets go of it when the server says that it will close
    sock.settimeout(head_s)
    # Who refuses a long body answers before it is sent whole, and closes: the answer is there to be read even so.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.request(request.method, address.prefix + request.target, request.body, dict(request.headers))
    response = connection.getresponse()
    sock.settimeout(silence_s)
    return response


@contextlib.contextmanager
def telling_faults(address: Address) -> Iterator[None]:
    """Turn what a network does into a `Failure`."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        raise Failure(describe_fault(error, address), UNREACHABLE) from None


def describe_fault(error: Exception, address: Address) -> str:
    """One sentence for whoever typed the command."""
    where = address.authority
    match error:
        case ssl.SSLCertVerificationError():
            return f"the certificate of {where} is not trusted: {error.verify_message}"
        case ssl.SSLError():
            return f"no TLS connection to {where}: {error.reason or 'it broke'}"
        case socket.gaierror():
            return f"there is no host {address.host}, or its name can't be looked up"
        case TimeoutError():
            return f"{where} does not answer in time"
        case ConnectionRefusedError():
            return f"nobody listens at {where}"
        case http.client.HTTPException():
            return f"the connection to {where} broke, or what answers there is no HTTP server"
        case OSError():
            return f"the connection to {where} broke: {error.strerror or error}"
        case _:
            return f"the connection to {where} broke"
