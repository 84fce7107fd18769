"""What is remembered of guides that were judged, for each payer apart.

Decides who is forgotten first. Must not know what a verdict says. Shared, how fast a verdict comes would tell one
organization that another has sent the same schema; and one that sends many would have others' judged anew.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Generic, TypeVar

ENTRY_BYTES = 1 << 10
"""What an entry takes beside the text that it keeps."""
V = TypeVar("V")


class Verdicts(Generic[V]):
    """Up to so many bytes of them. Whoever has most gives way, his longest unused one first."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._of: dict[str, OrderedDict[bytes, tuple[V, int]]] = {}
        self._held_bytes: Counter[str] = Counter()

    def get(self, payer: str, key: bytes) -> V | None:
        """What was said of a payer's guide."""
        kept = self._of.get(payer)
        if kept is None or key not in kept:
            return None
        kept.move_to_end(key)
        return kept[key][0]

    def keep(self, payer: str, key: bytes, verdict: V, text_bytes: int) -> None:
        """Remember it; `text_bytes` is of what it keeps."""
        kept = self._of.setdefault(payer, OrderedDict())
        before = kept.pop(key)[1] if key in kept else 0
        kept[key] = verdict, ENTRY_BYTES + text_bytes
        self._held_bytes[payer] += ENTRY_BYTES + text_bytes - before
        while self._held_bytes.total() > self._most_bytes:
            self._drop_one()

    def _drop_one(self) -> None:
        [(payer, _)] = self._held_bytes.most_common(1)
        kept = self._of[payer]
        _, (_, size_bytes) = kept.popitem(last=False)
        self._held_bytes[payer] -= size_bytes
        if not kept:
            del self._of[payer], self._held_bytes[payer]
