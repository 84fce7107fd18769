"""Where identity lies in Redis: the names of its keys, and its channel.

Decides names and nothing else. What is under a name is said beside the code that writes it.
"""

from __future__ import annotations

INVALIDATIONS = "b3os:keys:invalidated"
"""The channel of every change. Messages: the digest of a key or session, or `EVERYTHING`."""
EVERYTHING = "*"
ORGS = "b3os:orgs"
USERS = "b3os:users"
KEY_PREFIX = "b3os:key:"
KEY_ID_PREFIX = "b3os:key-id:"
SESSION_PREFIX = "b3os:session:"
ORG_PREFIX = "b3os:org:"
USER_PREFIX = "b3os:user:"


def key(digest: str) -> str:
    """A key's hash; `digest` is the SHA-256 of the whole key."""
    return f"{KEY_PREFIX}{digest}"


def key_children(digest: str) -> str:
    """The set of the digests of keys that this key made."""
    return f"{key(digest)}:children"


def key_id(record_id: str) -> str:
    """The digest of the key with this id."""
    return f"{KEY_ID_PREFIX}{record_id}"


def org(name: str) -> str:
    """An organization's hash."""
    return f"{ORG_PREFIX}{name}"


def org_projects(name: str) -> str:
    """The set of its projects."""
    return f"{org(name)}:projects"


def org_key_index(name: str) -> str:
    """Its keys and its users' tokens by time: `SECONDS-ID-DIGEST`, in a sorted set of equal scores."""
    return f"{org(name)}:key-index"


def org_key_ends(name: str) -> str:
    """The digests of its keys by the time at which they end; tokens are in `user_tokens`."""
    return f"{org(name)}:key-ends"


def org_members(name: str) -> str:
    """Its members: user id to role."""
    return f"{org(name)}:members"


def user(user_id: str) -> str:
    """A user's hash."""
    return f"{USER_PREFIX}{user_id}"


def user_email(email: str) -> str:
    """The id of the user with this address."""
    return f"b3os:user-email:{email}"


def user_orgs(user_id: str) -> str:
    """The same as `org_members` from the other side: organization to role. This side decides."""
    return f"{user(user_id)}:orgs"


def user_sessions(user_id: str) -> str:
    """The digests of a user's sessions by the time of their making."""
    return f"{user(user_id)}:sessions"


def user_tokens(user_id: str) -> str:
    """The digests of a user's CLI tokens by the time at which they end, whatever organization they are for."""
    return f"{user(user_id)}:tokens"


def device(digest: str) -> str:
    """A log-in by device that waits; `digest` is the SHA-256 of its device code."""
    return f"b3os:device:{digest}"


def device_user_code(user_code: str) -> str:
    """The digest of the device code that goes with this user code."""
    return f"b3os:device-user-code:{user_code}"


def session(digest: str) -> str:
    """A session's hash; `digest` is the SHA-256 of its value."""
    return f"{SESSION_PREFIX}{digest}"
