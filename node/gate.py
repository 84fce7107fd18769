"""Who may pass: the edge's token, once.

Decides whether a request is the edge's. Must not know routes or bodies.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_public_key

from shared.errors import TOKEN_REUSED, UNAUTHORIZED, ApiError
from shared.log import request_id_var
from shared.node_token import SKEW_S, InvalidNodeToken, NodeToken, verify
from shared.settings import SettingsError
from shared.web import CONTEXT

_log = logging.getLogger("b3os.gate")


def load_edge_keys(path: Path) -> dict[str, Ed25519PublicKey]:
    """Read the edges' public keys by `kid`, once: parsing PEM for every token would cost 100 µs each.

    Raises:
        SettingsError: the file is missing, or holds something else.
    """
    try:
        keys = {kid: load_pem_public_key(pem.encode()) for kid, pem in json.loads(path.read_text()).items()}
    except OSError as error:
        raise SettingsError(f"node.edge_keys_file: {path}: {error.strerror}") from None
    except (ValueError, AttributeError):
        raise SettingsError(f"node.edge_keys_file: {path} is not a JSON object of kid to PEM") from None
    checked = {kid: key for kid, key in keys.items() if isinstance(key, Ed25519PublicKey)}
    if not keys or len(checked) != len(keys):
        raise SettingsError(f"node.edge_keys_file: {path} must hold Ed25519 keys")
    return checked


class UsedTokens:
    """Ids of tokens that were taken, kept just as long as the tokens would pass."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}  # in the order of taking, so nearly of expiry

    def take(self, token: NodeToken, now_s: float) -> bool:
        """Whether this is the token's first use."""
        while self._until and next(iter(self._until.values())) < now_s:
            del self._until[next(iter(self._until))]
        if token.request_id in self._until:
            return False
        self._until[token.request_id] = token.expires_at_s + SKEW_S
        return True


class Gate:
    """Admits requests that carry a node token made for them."""

    def __init__(
        self, node_id: str, keys: Mapping[str, Ed25519PublicKey], clock: Callable[[], float] = time.time
    ) -> None:
        self._node_id, self._keys, self._clock = node_id, keys, clock
        self._used = UsedTokens()

    def admit(self, request: web.Request) -> NodeToken:
        """Check the token, take its id, and give the request the id that the edge gave it.

        Raises:
            ApiError: `UNAUTHORIZED` (an edge turns it into an alarm) or `TOKEN_REUSED`.
        """
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        now_s = self._clock()
        try:
            if scheme.lower() != "bearer":
                raise InvalidNodeToken("no bearer token")
            token = verify(
                text, self._keys, node_id=self._node_id, method=request.method, path=request.path, now_s=now_s
            )
        except InvalidNodeToken as error:
            _log.warning("node token refused", extra={"facts": {"why": str(error)}})
            raise ApiError(UNAUTHORIZED, "this node takes requests from its edge only") from None
        request[CONTEXT].request_id = token.request_id
        request_id_var.set(token.request_id)
        if not self._used.take(token, now_s):
            raise ApiError(TOKEN_REUSED, "this token was used before")
        return token
