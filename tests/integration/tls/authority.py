"""Certificates of a little authority of our own, as the files that settings name."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography import x509


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key, in files."""

    cert_file: Path
    key_file: Path

    def take(self, other: Pair) -> None:
        """Hold from now on what `other` holds."""
        self.key_file.write_bytes(other.key_file.read_bytes())
        self.cert_file.write_bytes(other.cert_file.read_bytes())


class Authority:
    """Signs certificates, and lets itself be trusted."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._ca = trustme.CA()
        self._folder = folder
        self.file = folder / f"{name}.pem"
        self._ca.cert_pem.write_to_path(str(self.file))

    def issue(self, name: str, *hosts: str) -> Pair:
        """A pair in files of this name."""
        issued = self._ca.issue_cert(*hosts)
        pair = Pair(self._folder / f"{name}-cert.pem", self._folder / f"{name}-key.pem")
        pair.cert_file.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(pair.key_file))
        return pair

    def client_context(self, shown: Pair | None = None) -> ssl.SSLContext:
        """Of a client that trusts this authority, and shows a pair if asked."""
        context = ssl.create_default_context(cafile=str(self.file))
        if shown is not None:
            context.load_cert_chain(shown.cert_file, shown.key_file)
        return context


def serial_of(certificate_der: bytes) -> int:
    """What tells one certificate from another."""
    return x509.load_der_x509_certificate(certificate_der).serial_number
