"""`b3os admin`, for operators: users, organizations, projects, memberships and keys, straight in Redis.

Decides how the commands read and what they print. Must not know how anything is stored. Passwords are asked for or
read from standard input: what stands on a command line is in the history, and in every list of processes.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import click

from edge.admin.keys import keys
from edge.auth.accounts import Organization, RedisAccounts, User, canonical_email, is_email
from edge.auth.key_store import RedisKeyStore
from edge.auth.limits import LIMITS, MAX_LIMIT
from edge.auth.passwords import MAX_CHARACTERS, MIN_CHARACTERS, hash_password
from edge.auth.scopes import ROLES
from edge.cli import check_name, on_redis
from shared.cli.redis_acl import redis_acl
from shared.ids import new_record_id


@click.group()
def admin() -> None:
    """Users, organizations, projects, memberships, limits and keys, straight in Redis."""


admin.add_command(keys)
admin.add_command(redis_acl)


@admin.group()
def user() -> None:
    """People who may log in to the dashboard."""


@admin.group()
def org() -> None:
    """Organizations: who pays, and whose limits count."""


@admin.group()
def project() -> None:
    """Projects of an organization."""


@admin.group()
def member() -> None:
    """Who belongs to an organization, and as what."""


def _email(context: click.Context, parameter: click.Parameter, value: str) -> str:
    del context, parameter
    address = canonical_email(value)
    if not is_email(address):
        raise click.BadParameter("this is no mail address")
    return address


def _read_password() -> str:
    """From the terminal, twice and unseen; else the first line of standard input."""
    if sys.stdin.isatty():
        password = str(click.prompt("Password", hide_input=True, confirmation_prompt=True))
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not MIN_CHARACTERS <= len(password) <= MAX_CHARACTERS:
        raise click.ClickException(f"a password has {MIN_CHARACTERS} to {MAX_CHARACTERS} characters")
    try:
        password.encode()
    except UnicodeEncodeError:
        raise click.ClickException("the password is not text in the terminal's encoding") from None
    return password


@user.command("create")
@click.argument("email", callback=_email)
@click.option("--name", default=None, help="How the dashboard calls the person; the address without it.")
def create_user(email: str, name: str | None) -> None:
    """Make a user; the password is asked for, or is the first line of standard input."""
    called = email if name is None else name
    if not called.isprintable() or not 1 <= len(called) <= 254:
        raise click.ClickException("a name has 1 to 254 printable characters")
    made = User(
        id=new_record_id("usr"),
        email=email,
        name=called,
        status="active",
        password=hash_password(_read_password()),
        password_version=1,
        created_at_s=int(time.time()),
    )
    on_redis(lambda redis: RedisAccounts(redis).create_user(made))
    click.echo(f"made user {made.id} {made.email}")


@user.command("password")
@click.argument("email", callback=_email)
def set_password(email: str) -> None:
    """Give a user a new password, which ends all sessions and CLI tokens of that person, and no API keys."""
    hashed = hash_password(_read_password())
    on_redis(lambda redis: _set_password(RedisAccounts(redis), email, hashed))
    click.echo(f"new password for {email}")


async def _set_password(accounts: RedisAccounts, email: str, hashed: str) -> None:
    await accounts.set_password((await accounts.require_user(email)).id, hashed)


@user.command()
@click.argument("email", callback=_email)
def disable(email: str) -> None:
    """Lock a user out: sessions and keys of that person open nothing, on every edge, within a second."""
    on_redis(lambda redis: _set_status(RedisAccounts(redis), email, "disabled"))
    click.echo(f"disabled {email}")


@user.command()
@click.argument("email", callback=_email)
def enable(email: str) -> None:
    """Let a disabled user in again, and his keys with him."""
    on_redis(lambda redis: _set_status(RedisAccounts(redis), email, "active"))
    click.echo(f"enabled {email}")


async def _set_status(accounts: RedisAccounts, email: str, status: str) -> None:
    await accounts.set_user_status((await accounts.require_user(email)).id, status)


_AMOUNT = click.IntRange(0, MAX_LIMIT)


def _with_limits(command: Callable[..., None]) -> Callable[..., None]:
    """An option for each limit."""
    for limit in reversed(LIMITS):
        command = click.option(f"--{limit.replace('_', '-')}", type=_AMOUNT)(command)
    return command


@org.command("create")
@click.argument("name", callback=check_name)
@_with_limits
def create_org(name: str, **wanted: int | None) -> None:
    """Make an organization; what has no limit here has none at all."""
    on_redis(lambda redis: _create_org(RedisAccounts(redis), name, _chosen(wanted)))
    click.echo(f"made organization {name}")


async def _create_org(accounts: RedisAccounts, name: str, limits: Mapping[str, int | None]) -> None:
    await accounts.create_organization(name, int(time.time()))
    if limits:
        await accounts.set_limits(name, limits)


def _chosen(wanted: Mapping[str, int | None]) -> dict[str, int | None]:
    return {limit: value for limit, value in wanted.items() if value is not None}


@org.command()
@click.argument("name", callback=check_name)
def suspend(name: str) -> None:
    """Refuse everything that an organization asks for, on every edge, within a second."""
    on_redis(lambda redis: RedisKeyStore(redis).set_organization_status(name, "suspended"))
    click.echo(f"suspended {name}")


@org.command()
@click.argument("name", callback=check_name)
def resume(name: str) -> None:
    """Serve a suspended organization again."""
    on_redis(lambda redis: RedisKeyStore(redis).set_organization_status(name, "active"))
    click.echo(f"resumed {name}")


@org.group()
def limits() -> None:
    """What an organization may use."""


@limits.command("set")
@click.argument("name", callback=check_name)
@_with_limits
@click.option(
    "--lift", "lifted", multiple=True, type=click.Choice(LIMITS), help="Repeatable; no such limit any more."
)
def set_limits(name: str, lifted: tuple[str, ...], **wanted: int | None) -> None:
    """Set or lift some limits of an organization; the others stay."""
    changes = _chosen(wanted) | dict.fromkeys(lifted)
    if not changes:
        raise click.UsageError("name a limit to set or to lift")
    on_redis(lambda redis: RedisAccounts(redis).set_limits(name, changes))
    click.echo(f"set limits of {name}")


@project.command("create")
@click.argument("organization", callback=check_name)
@click.argument("name", callback=check_name)
def create_project(organization: str, name: str) -> None:
    """Make a project of an organization."""
    on_redis(lambda redis: RedisAccounts(redis).create_project(organization, name))
    click.echo(f"made project {organization}/{name}")


@member.command("add")
@click.argument("organization", callback=check_name)
@click.argument("email", callback=_email)
@click.option("--role", type=click.Choice(tuple(ROLES)), default="member", show_default=True)
def add_member(organization: str, email: str, role: str) -> None:
    """Make a user a member of an organization, or give a member another role."""
    on_redis(lambda redis: _set_role(RedisAccounts(redis), organization, email, role))
    click.echo(f"{email} is {role} of {organization}")


async def _set_role(accounts: RedisAccounts, organization: str, email: str, role: str) -> None:
    await accounts.set_role(organization, (await accounts.require_user(email)).id, role)


@member.command("remove")
@click.argument("organization", callback=check_name)
@click.argument("email", callback=_email)
def remove_member(organization: str, email: str) -> None:
    """End a membership; keys that the user made there open nothing any more."""
    on_redis(lambda redis: _remove_member(RedisAccounts(redis), organization, email))
    click.echo(f"{email} is no member of {organization}")


async def _remove_member(accounts: RedisAccounts, organization: str, email: str) -> None:
    await accounts.remove_member(organization, (await accounts.require_user(email)).id)


@admin.command("list")
@click.option("--json", "as_json", is_flag=True)
def list_(as_json: bool) -> None:
    """Everybody and everything but keys, which `b3os admin keys list` has."""
    users, organizations = on_redis(lambda redis: _read_all(RedisAccounts(redis)))
    emails = {each.id: each.email for each in users}
    if as_json:
        facts = {
            "users": [
                {"id": each.id, "email": each.email, "name": each.name, "status": each.status} for each in users
            ],
            "organizations": [_facts(each, emails) for each in organizations],
        }
        click.echo(json.dumps(facts))
        return
    for each in users:
        click.echo(f"user  {each.id}  {each.email}  {each.status}  {each.name}")
    for organization in organizations:
        shown = _facts(organization, emails)
        click.echo(f"org   {shown['id']}  {shown['status']}  projects: {', '.join(shown['projects']) or 'none'}")
        for address, role in shown["members"].items():
            click.echo(f"      {role}  {address}")
        for limit, value in shown["limits"].items():
            click.echo(f"      {limit}  {value}")


async def _read_all(accounts: RedisAccounts) -> tuple[list[User], list[Organization]]:
    return await accounts.list_users(), await accounts.list_organizations()


def _facts(organization: Organization, emails: dict[str, str]) -> dict[str, Any]:
    return {
        "id": organization.id,
        "status": organization.status,
        "projects": list(organization.projects),
        "members": {emails.get(user_id, user_id): role for user_id, role in sorted(organization.members.items())},
        "limits": dict(organization.limits),
    }
