"""`b3os login`, `logout` and `whoami`.

Decides what is said on the way, and that a token ends at the server and in the file, each whatever becomes of the
other. Must not know how a login is waited for (device.py), nor how tokens are kept (credentials.py).
"""

from __future__ import annotations

import time
from dataclasses import replace

import click

from shared.cli.user.api import Api, Refused
from shared.cli.user.browser import open_page
from shared.cli.user.command import KEY_VARIABLE, Session, UserCommand, is_token
from shared.cli.user.console import note, say, say_json
from shared.cli.user.device import CLIENT, DeviceCode, Poll, parse_device_code
from shared.cli.user.document import Document
from shared.cli.user.failure import Failure
from shared.cli.user.table import render_facts
from shared.cli.user.text import one_line

_SESSION = "/v1/auth/session"
_NO_ROUTE = (403, 404, 405)


@click.command(cls=UserCommand)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
@click.pass_obj
def login(session: Session, /, *, no_browser: bool) -> None:
    """Log in with a code that you confirm in a browser, here or on another machine."""
    url = session.address.url
    older = session.file.token_of(url)  # a file that can't be used is told before anybody takes the trouble
    anonymous = Api(session.address, None)
    code = parse_device_code(anonymous.post("/v1/auth/device/code", {"client": CLIENT}))
    _show_code(session, code)
    if not no_browser:
        open_page(code.verification_uri_complete or code.verification_uri)
    token = Poll(anonymous, code, time.monotonic, time.sleep).wait_for_token()
    try:
        session.file.save(url, token)
    except Failure:
        _end_quietly(session, token)  # nobody would know it any more
        raise
    _end_quietly(session, older)
    _show_login(session, Api(session.address, token))


@click.command(cls=UserCommand)
@click.pass_obj
def logout(session: Session) -> None:
    """Revoke the token of `b3os login`, and remove it from this machine in any case."""
    session = replace(session, ends_login=True)
    if session.named_url is None and session.file.current_url() is None:
        session.file.remove()  # there may be one that is damaged
        _show_logout(session, None, is_revoked=False)
        return
    url = session.address.url
    token = session.file.token_of(url) or ""
    try:
        is_revoked = is_token(token) and _revoke(Api(session.address, token))
    except Failure as failure:
        words = f"removed from this machine, but it may still be valid at {url}: {failure.message}"
        raise Failure(words, failure.exit_code) from None
    finally:
        session.file.forget(url)
    _show_logout(session, url if token else None, is_revoked=is_revoked)


@click.command(cls=UserCommand)
@click.pass_obj
def whoami(session: Session) -> None:
    """Show who you are to the server: user or key, organization, project, scopes."""
    facts = _without_csrf(session.api().get(_SESSION))
    if session.as_json:
        say_json(facts)
        return
    say(render_facts({"server": session.address.url, **facts}))


def _show_code(session: Session, code: DeviceCode) -> None:
    if session.as_json:
        say_json({"event": "code", **code.public_facts()})
        return
    say(f"Open {one_line(code.verification_uri)}\nand enter the code  {one_line(code.user_code)}\n")
    say("Waiting for your confirmation; Ctrl-C stops.")


def _show_login(session: Session, api: Api) -> None:
    url = session.address.url
    try:
        facts = _without_csrf(api.get(_SESSION))
    except Failure:  # the login holds without it
        facts = {}
    if session.as_json:
        say_json({"event": "logged_in", "url": url, "session": facts or None})
        return
    say(f"Logged in to {url}.")
    if facts:
        say(render_facts(facts))
    if session.environ.get(KEY_VARIABLE):
        note(f"{KEY_VARIABLE} is set, and is used instead of this login.")


def _show_logout(session: Session, url: str | None, *, is_revoked: bool) -> None:
    if session.as_json:
        say_json({"url": url, "revoked": is_revoked})
        return
    say(f"Logged out of {url}." if url else "There was no login.")
    if url and not is_revoked:
        note("The server has no way to revoke the token from here: it stays valid until it is revoked there.")
    if session.environ.get(KEY_VARIABLE):
        note(f"{KEY_VARIABLE} is set, and is used all the same.")


def _revoke(api: Api) -> bool:
    """End the token at the server; False if it has no route for that.

    Raises:
        Failure: it is not known to have ended.
    """
    try:
        api.ask("POST", "/v1/auth/logout")
    except Refused as refused:
        if refused.refusal.status in _NO_ROUTE:
            return False
        if refused.refusal.status != 401:  # that one is over already
            raise refused.refusal.as_failure() from None
    return True


def _end_quietly(session: Session, unkept: str | None) -> None:
    """A token that this machine doesn't keep is of no use to anybody; the command does not depend on its end."""
    if unkept is None or not is_token(unkept):
        return
    try:
        _revoke(Api(session.address, unkept))
    except Failure:
        note("A token that is not kept here could not be revoked.")


def _without_csrf(facts: Document) -> Document:
    """The token for changes by cookie is a secret, and of no use here."""
    return {name: value for name, value in facts.items() if name != "csrf_token"}
