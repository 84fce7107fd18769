"""The edge's signing key: make, write and read it.

Decides the form of both files. Must not know what is signed.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from shared.node_token import SigningKey


class BadSigningKey(Exception):
    """A key file can't be used or made; the message is one sentence for an operator."""


def key_id(public: Ed25519PublicKey) -> str:
    """`kid`: the first 16 hex characters of the SHA-256 of the raw public key, so that both sides agree on it."""
    return hashlib.sha256(public.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def load_signing_key(path: Path) -> SigningKey:
    """Read the private key once; parsing it for every token would double the cost of minting.

    Raises:
        BadSigningKey: the file is missing, unreadable, or no Ed25519 key in PEM.
    """
    try:
        private = load_pem_private_key(path.read_bytes(), password=None)
    except OSError as error:
        raise BadSigningKey(f"the signing key {path} can't be read: {error.strerror}") from None
    except (ValueError, TypeError):
        raise BadSigningKey(f"{path} is not a private key in PEM without a password") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise BadSigningKey(f"{path} is not an Ed25519 key")
    return SigningKey(key_id(private.public_key()), private)


def create_key_files(private_path: Path, public_path: Path) -> str:
    """Write a new pair: the private PEM for the edge (0600), and `{kid: PEM}` for the nodes. Return the kid.

    Raises:
        BadSigningKey: one of the files exists already, or can't be written.
    """
    if public_path.exists():
        raise BadSigningKey(f"{public_path} exists already; remove both files to make new keys")
    private = Ed25519PrivateKey.generate()
    public = private.public_key()
    pem = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    _write_new(private_path, private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600)
    _write_new(public_path, json.dumps({key_id(public): pem}, indent=2).encode() + b"\n", 0o644)
    return key_id(public)


def _write_new(path: Path, content: bytes, mode: int) -> None:
    """Create exclusively with `mode` from the first moment, so that nobody reads a key in between."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
    except FileExistsError:
        raise BadSigningKey(f"{path} exists already; remove both files to make new keys") from None
    except OSError as error:
        raise BadSigningKey(f"{path} can't be written: {error.strerror}") from None
