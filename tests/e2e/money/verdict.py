"""What callers saw of a storm, beside what the books say of it.

Decides what a caller's account and the books owe each other, whatever died in between.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field

from tests.e2e.money.audit import Books
from tests.e2e.money.client import Call

PER_MINUTE = 120
CAP_NANO_USD = 1_500_000


@dataclass(slots=True)
class Account:
    """One call as its caller saw it: at most `patience` words were waited for."""

    call: Call
    patience: int | None = None


@dataclass(slots=True)
class Verdict:
    """What callers know, beside the books.

    Attributes:
        refused: by status and code. unaccounted: what is wrong, a sentence each; it must be empty.
        late_tokens: that were delivered by nodes which were killed before they told of them. untold: calls of which
            they had told nothing at all, though something was delivered.
    """

    sent: int = 0
    answered: int = 0
    failed: int = 0
    left: int = 0
    cut: int = 0
    unheard: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    billed_once: int = 0
    amended: int = 0
    abandoned: int = 0
    late_tokens: int = 0
    untold: int = 0
    unaccounted: list[str] = field(default_factory=list)

    def read(self, accounts: list[Account], books: Books) -> None:
        """Compare all calls of one organization with its books, which agree among themselves."""
        bills = books.bills()
        self.billed_once += sum(bill["requests"] == 1 for bill in bills.values())
        self.amended += sum(entry["outcome"] == "reversed" for entry in books.entries)
        self.abandoned += sum(record.outcome == "abandoned" for record in books.records.values())
        unheard = 0
        for account in accounts:
            self.sent += 1
            unheard += not account.call.request_id
            self._sort(account)
            if account.call.request_id:
                self._judge(account.call, books)
        self.unheard += unheard
        strangers = bills.keys() - {account.call.request_id for account in accounts}
        if len(strangers) > unheard:
            self.unaccounted.append(f"{len(strangers)} bills for {unheard} calls whose ids nobody heard")

    def _sort(self, account: Account) -> None:
        call = account.call
        if call.status is None:
            return
        if call.code == "internal" and "crash" not in json.dumps(call.body):
            self.unaccounted.append(f"a fault of ours: {call.request_id}")
        if call.status != 200:
            self.refused[f"{call.status} {call.code}"] += 1
        elif call.is_whole:
            self.answered += 1
        elif call.code is not None:
            self.failed += 1
        elif call.broke:
            self.cut += 1
        else:
            self.left += 1

    def _judge(self, call: Call, books: Books) -> None:
        record = books.records.get(call.request_id)
        bill = books.bills().get(call.request_id, Counter())
        told = f"{call.request_id}: {call.status} {call.code}, {call.words} words, {call.usage}; billed {bill}"
        if record is None or (not bill and record.outcome != "abandoned"):
            if call.status == 200:
                self.unaccounted.append(f"never billed: {told}")
            return
        output, is_abandoned = bill["output_tokens"], record.outcome == "abandoned"
        if bill["requests"] != (1 if bill["cost_nano_usd"] else 0):
            self.unaccounted.append(f"not billed once: {told}")
        elif call.status is not None and 400 <= call.status < 500 and bill["cost_nano_usd"]:
            self.unaccounted.append(f"refused and billed: {told}")
        elif is_abandoned and call.status == 200:
            self.late_tokens += max(0, max(call.words, call.usage.get("output_tokens", 0)) - output)
            self.untold += call.words > 0 and output == 0
        elif call.is_whole and call.usage != {name: bill[name] for name in call.usage}:
            self.unaccounted.append(f"billed otherwise than told: {told}")
        elif call.words > output:
            self.unaccounted.append(f"delivered more than billed: {told}")

    def check_limits(self, limited: Books, capped: Books) -> None:
        """No minute had more than may be, and no cap was passed."""
        times = sorted(int(entry["admitted_ms"]) for entry in limited.entries if entry["outcome"] != "reversed")
        most = max((sum(begin <= at < begin + 60_000 for at in times) for begin in times), default=0)
        if most > PER_MINUTE:
            self.unaccounted.append(f"{most} requests in a minute of {PER_MINUTE}")
        if capped.settled["total"] > CAP_NANO_USD:
            self.unaccounted.append(f"{capped.settled['total']} spent of {CAP_NANO_USD}")
