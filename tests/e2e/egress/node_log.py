"""The log of a node that runs in another process, as far as tests ask for it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Line = dict[str, Any]


@dataclass(slots=True)
class NodeLog:
    """Reads what was added since the last look. The lines of a whole answer are there before it is."""

    path: Path
    lines: list[Line] = field(default_factory=list)
    _offset: int = field(default=0, init=False)

    def forget(self) -> None:
        """Begin another test."""
        self.read()
        self.lines.clear()

    def read(self) -> None:
        """Take in all whole lines; what no logger wrote is none of ours."""
        with self.path.open("rb") as file:
            file.seek(self._offset)
            whole = file.read().rpartition(b"\n")[0]
        self._offset += len(whole) + bool(whole)
        self.lines += [json.loads(line) for line in whole.splitlines() if line.startswith(b"{")]

    def fetches(self, request_id: str | None = None) -> list[Line]:
        """What became of each image URL, for one request or all."""
        self.read()
        return [
            line
            for line in self.lines
            if line["logger"] == "b3os.egress" and request_id in (None, line["request_id"])
        ]

    def statuses(self) -> list[int]:
        """Of the requests that ended."""
        self.read()
        return [line["status"] for line in self.lines if line["logger"] == "b3os.request"]
