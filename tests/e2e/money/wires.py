"""Links that can be cut: a node in a network namespace of its own, with one to the edges and one to Redis.

Decides how packets are lost without a word. Must not know what runs at the ends. Only root may lay links; a namespace
ends with the process that holds it, so nothing is left behind by a harness that was killed.
"""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

Far = Literal["edges", "redis"]
FARS: tuple[Far, ...] = ("edges", "redis")
_NOWHERE = "02:00:00:00:00:01"


class NotPermitted(Exception):
    """No links here; the message is one sentence."""


@dataclass(slots=True)
class Link:
    """Two ends, of which the far one is in the common namespace."""

    device: str
    near: str
    far: str


@dataclass(slots=True)
class Wires:
    """All links of one node."""

    links: dict[Far, Link]
    _holder: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> str:
        """Where the edges find the node."""
        return self.links["edges"].near

    @property
    def redis_host(self) -> str:
        """Where the node finds Redis."""
        return self.links["redis"].far

    def enter(self, command: Sequence[str]) -> list[str]:
        """The command, run in the namespace; its process is the one that is started."""
        assert self._holder is not None, "not laid"
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]

    def lay(self) -> None:
        """Make the namespace and the links.

        Raises:
            NotPermitted: by this user or on this system.
        """
        try:
            self._holder = subprocess.Popen(
                ["unshare", "--net", "sh", "-c", "echo; exec cat"],  # `cat` ends when our end of its pipe closes
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                process_group=0,
            )
            assert self._holder.stdout is not None
            if not self._holder.stdout.read(1):
                raise NotPermitted("a network namespace needs root's rights")
            _run(*self.enter(["ip", "link", "set", "lo", "up"]))
            # What a killed process leaves gives up soon: else it would tell of the death once a cut is mended.
            _run(*self.enter(["sh", "-c", "echo 1 > /proc/sys/net/ipv4/tcp_orphan_retries"]))
            for link in self.links.values():
                self._lay_link(link)
        except (OSError, subprocess.CalledProcessError) as error:
            self.remove()
            raise NotPermitted(f"no network namespace can be wired here: {_why(error)}") from None

    def _lay_link(self, link: Link) -> None:
        assert self._holder is not None
        _run("ip", "link", "add", link.device, "type", "veth", "peer", "name", f"{link.device}x")
        _run("ip", "link", "set", f"{link.device}x", "netns", str(self._holder.pid))
        _run("ip", "addr", "add", f"{link.far}/30", "dev", link.device)
        _run("ip", "link", "set", link.device, "up")
        _run(*self.enter(["ip", "addr", "add", f"{link.near}/30", "dev", f"{link.device}x"]))
        _run(*self.enter(["ip", "link", "set", f"{link.device}x", "up"]))

    def cut(self, *fars: Far) -> None:
        """What either end sends from here on is dropped; nobody is told."""
        for link in (self.links[far] for far in fars):
            _run("ip", *_neighbour("replace", link.near, link.device))
            _run(*self.enter(["ip", *_neighbour("replace", link.far, f"{link.device}x")]))

    def mend(self, *fars: Far) -> None:
        """Undo it."""
        for link in (self.links[far] for far in fars):
            _run("ip", "neigh", "del", link.near, "dev", link.device)
            _run(*self.enter(["ip", "neigh", "del", link.far, "dev", f"{link.device}x"]))

    def remove(self) -> None:
        """The namespace ends, once nobody is in it."""
        if self._holder is not None:
            self._holder.kill()
            self._holder.communicate()
            self._holder = None


def _neighbour(what: str, address: str, device: str) -> tuple[str, ...]:
    """A link layer address that nobody has: neither end sees a link that is down."""
    return ("neigh", what, address, "lladdr", _NOWHERE, "dev", device, "nud", "permanent")


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _why(error: Exception) -> str:
    return (error.stderr or "").strip() if isinstance(error, subprocess.CalledProcessError) else str(error)


def plan_wires(count: int, routes: str) -> list[Wires]:
    """Devices and private addresses that this process alone uses; `routes` tells which networks are taken."""
    while f"{(net := f'10.{random.randrange(256)}.{random.randrange(256)}')}." in routes:
        pass
    planned = []
    for number in range(count):
        links = {}
        for place, far in enumerate(FARS):
            base = 8 * number + 4 * place
            device = f"b{os.getpid():x}n{number}{far[0]}"
            links[far] = Link(device, f"{net}.{base + 2}", f"{net}.{base + 1}")
        planned.append(Wires(links))
    return planned


@contextlib.contextmanager
def laid_wires(count: int) -> Iterator[list[Wires]]:
    """For so many nodes, while the body runs.

    Raises:
        NotPermitted: see `Wires.lay`.
    """
    try:
        planned = plan_wires(count, _run("ip", "-4", "route"))
    except OSError as error:
        raise NotPermitted(f"no network namespace can be wired here: {error}") from None
    try:
        for wires in planned:
            wires.lay()
        yield planned
    finally:
        for wires in planned:
            wires.remove()
