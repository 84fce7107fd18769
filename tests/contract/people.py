"""Somebody who logs in to the running service."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from http.cookies import SimpleCookie
from typing import Any

from edge.auth.session_cookie import NAME
from tests.contract.service import Answer, Service
from tests.e2e.stack import DevStack
from tests.e2e.unheard import run_b3os

PASSWORD = "correct horse battery"


def b3os_admin(stack: DevStack, *words: str, text: str = "") -> str:
    """Run `b3os admin` against the stack's Redis; what it printed."""
    return run_b3os("admin", *words, environment={"B3OS_REDIS_URL": stack.redis_url}, text=text)


def make_person(stack: DevStack, role: str = "owner") -> str:
    """A user with `PASSWORD`, a member of `dev`; returns the address."""
    email = f"{secrets.token_hex(4)}@example.com"
    b3os_admin(stack, "user", "create", email, text=f"{PASSWORD}\n")
    b3os_admin(stack, "member", "add", "dev", email, "--role", role)
    return email


@dataclass
class Person:
    """A session of the dashboard."""

    service: Service
    email: str
    cookie: str = ""
    csrf: str = ""

    def send(self, method: str, path: str, body: object = None, **headers: str) -> Answer:
        """With the cookie, the token and what a browser adds; an empty header is left out."""
        raw = None if body is None else json.dumps(body).encode()
        sent = {
            "Cookie": f"{NAME}={self.cookie}" if self.cookie else "",
            "x_b3os_csrf": self.csrf,
            "Sec_Fetch_Site": "same-origin",
        }
        return self.service.send(raw, path, method, key="", **{**sent, **headers})

    def take(self, answer: Answer) -> dict[str, Any]:
        """Go on with the session that was given."""
        told = answer.message
        self.cookie = SimpleCookie(answer.headers["set-cookie"])[NAME].value
        self.csrf = told["csrf_token"]
        return told

    def log_in(self, password: str = PASSWORD) -> dict[str, Any]:
        """A new session."""
        return self.take(self.send("POST", "/v1/auth/login", {"email": self.email, "password": password}))
