"""TLS of our own listeners and towards them: contexts from files, and new certificates without a new process.

Decides versions, and that a certificate which can't be used never takes the place of one that can. Must not know who
listens. Certificates are changed by `reload`: connections go on, and only handshakes after it get the new chain.
"""

from __future__ import annotations

import contextlib
import logging
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from cryptography import x509
from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

_MEMORY = Path("/dev/shm")  # noqa: S108 - files without a name
_log = logging.getLogger("b3os.tls")


class BadCertificate(Exception):
    """Files can't be used for TLS; the message is one sentence for an operator."""


class ServerCertificate:
    """What a listener shows, and whom it lets in.

    Attributes:
        context: for the listener, for as long as it listens.
        expires_at_s: Unix seconds at which the certificate ends.
    """

    def __init__(self, cert_file: Path, key_file: Path, client_ca_file: Path | None = None) -> None:
        """With `client_ca_file`, only clients with a certificate of that authority are let in.

        Raises:
            BadCertificate: a file is missing, broken, or not of the other.
        """
        self._cert_file, self._key_file, self._client_ca_file = cert_file, key_file, client_ca_file
        self._newest, self.expires_at_s = self._load()
        self.context = self._newest
        # A context can't take a chain back that it was given, and a broken pair would leave it with half of one. So
        # each chain has a context of its own, which this hook, called at each handshake, puts in.
        self.context.sni_callback = self._take_newest

    def reload(self) -> None:
        """Read the files again; if they can't be used, the log says why, and nothing changes."""
        try:
            self._newest, self.expires_at_s = self._load()
        except BadCertificate as error:
            _log.error("the new certificate can't be used; the old one stays", extra={"facts": {"why": str(error)}})
        else:
            _log.info("certificate changed", extra={"facts": {"file": str(self._cert_file)}})

    def _take_newest(self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        del name, context
        connection.context = self._newest

    def _load(self) -> tuple[ssl.SSLContext, float]:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        _load_chain(context, self._cert_file, self._key_file)
        if self._client_ca_file is not None:
            _load_authority(context, self._client_ca_file)
            context.verify_mode = ssl.CERT_REQUIRED
        return context, _expiry_of(self._cert_file)


class ClientCertificate:
    """Whom we trust when we connect, and what we show there if asked."""

    def __init__(self, ca_file: Path | None, cert_file: Path | None = None, key_file: Path | None = None) -> None:
        """Without `ca_file` the system's authorities count.

        Raises:
            BadCertificate: a file is missing, broken, or not of the other.
        """
        self._files = None if cert_file is None or key_file is None else (cert_file, key_file)
        self.context = ssl.create_default_context() if ca_file is None else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        if ca_file is not None:
            _load_authority(self.context, ca_file)
        if self._files is not None:
            _load_chain(self.context, *self._files)

    def reload(self) -> None:
        """Show what the files hold now, from the next connection on."""
        if self._files is None:
            return
        try:
            with _copied(*self._files) as copies:  # the second load must not find what the first one didn't
                trial = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # a broken pair must not get into ours
                for context in (trial, self.context):
                    _load_chain(context, *copies, told=self._files)
        except BadCertificate as error:
            _log.error("the new certificate can't be used; the old one stays", extra={"facts": {"why": str(error)}})


class CertificateCollector(Collector):
    """When certificates end, for Prometheus."""

    def __init__(self, certificates: Sequence[ServerCertificate]) -> None:
        self._certificates = certificates

    def collect(self) -> Iterator[Metric]:
        """The next end; no sample where nothing listens with TLS."""
        ends = GaugeMetricFamily("b3os_tls_certificate_expires_seconds", "Unix time at which the certificate ends.")
        if self._certificates:
            ends.add_metric([], min(each.expires_at_s for each in self._certificates))
        yield ends


@contextlib.contextmanager
def _copied(*files: Path) -> Iterator[list[Path]]:
    """What each holds now, in memory and under no name that others could open."""
    with contextlib.ExitStack() as stack:
        copies = []
        for file in files:
            try:
                copy = stack.enter_context(tempfile.TemporaryFile(dir=_MEMORY if _MEMORY.is_dir() else None))
                copy.write(file.read_bytes())
                copy.flush()
            except OSError as error:
                raise BadCertificate(f"{file} can't be read: {error.strerror}") from None
            copies.append(Path(f"/proc/self/fd/{copy.fileno()}"))
        yield copies


def _load_chain(
    context: ssl.SSLContext, cert_file: Path, key_file: Path, *, told: tuple[Path, Path] | None = None
) -> None:
    """`told`: the names for whoever reads the message, where these are not the files of an operator."""
    cert_name, key_name = told or (cert_file, key_file)
    try:
        context.load_cert_chain(cert_file, key_file, _refuse_to_ask)
    except ssl.SSLError as error:
        raise BadCertificate(f"{cert_name} and {key_name} are no pair in PEM: {error.reason}") from None
    except OSError as error:
        raise BadCertificate(f"{cert_name} or {key_name} can't be read: {error.strerror}") from None


def _refuse_to_ask() -> str:
    """Else OpenSSL asks at the terminal, and a service waits for an answer that nobody gives."""
    raise BadCertificate("the private key has a password; it has to be without")


def _load_authority(context: ssl.SSLContext, ca_file: Path) -> None:
    try:
        context.load_verify_locations(ca_file)
    except ssl.SSLError as error:
        raise BadCertificate(f"{ca_file} is no certificate in PEM: {error.reason}") from None
    except OSError as error:
        raise BadCertificate(f"{ca_file} can't be read: {error.strerror}") from None


def _expiry_of(cert_file: Path) -> float:
    try:
        return x509.load_pem_x509_certificate(cert_file.read_bytes()).not_valid_after_utc.timestamp()
    except (OSError, ValueError):
        raise BadCertificate(f"{cert_file} is no certificate in PEM") from None
