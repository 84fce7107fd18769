"""The page as a person uses it: by its labels, headings and buttons, as a screen reader tells them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from playwright.async_api import Locator, Page, expect

from edge.auth.accounts import User
from tests.integration.edge.people import PASSWORD

WITHIN_MS = 20_000
LOG_IN, CODE, DECISION = "Log in", "Enter the code", "Let this program in?"
APPROVED, DENIED = "The program is let in", "The program was sent away"


@dataclass
class DevicePage:
    """One tab with it, at the edge of `url`."""

    tab: Page
    url: str
    pictures: Path | None = None

    async def open(self, user_code: str = "") -> None:
        await self.tab.goto(f"{self.url}/device" + (f"?user_code={user_code}" if user_code else ""))

    async def sees(self, heading: str) -> None:
        """Wait for a step; take its picture."""
        await expect(self.tab.get_by_role("heading", level=1)).to_have_text(heading)
        await expect(self.tab).to_have_title(f"{heading} · B3OS")
        await self.shoot(heading)

    async def shoot(self, name: str) -> None:
        if self.pictures is not None:
            number = len(list(self.pictures.glob("*.png"))) + 1
            name = re.sub(r"\W+", "-", name).strip("-").lower()
            await self.tab.screenshot(path=self.pictures / f"{number:02}-{name}.png", full_page=True)

    async def log_in(self, email: str, password: str = PASSWORD) -> None:
        await self.tab.get_by_label("Mail address").fill(email)
        await self.tab.get_by_label("Password").fill(password)
        await self.press("Log in")

    async def enter(self, user_code: str) -> None:
        await self.tab.get_by_label("Code", exact=True).fill(user_code)
        await self.press("Go on")

    async def press(self, name: str) -> None:
        await self.tab.get_by_role("button", name=name, exact=True).click()

    def fact(self, name: str) -> Locator:
        """What stands beside one of the names of facts."""
        return self.tab.locator("dl div", has_text=name).locator("dd")

    async def is_told(self, words: str, *, with_id: bool = True) -> None:
        """Wait for an alert with these words, and with the id of the request."""
        alert = self.tab.get_by_role("alert")
        await expect(alert).to_contain_text(words)
        if with_id:
            await expect(alert).to_contain_text("Request req_")
        await self.shoot(words[:40])

    async def come_to_the_decision(self, user: User, user_code: str) -> None:
        await self.open()
        await self.sees(LOG_IN)
        await self.log_in(user.email)
        await self.sees(CODE)
        await self.enter(user_code)
        await self.sees(DECISION)
