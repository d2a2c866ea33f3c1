"""Visits of pages of a console in Chromium: each as a screenshot at two widths, inspected by axe, and its faults."""

import time
from pathlib import Path
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, ViewportSize

LISTS: Final = (
    "overview",
    "dead-letters",
    "groups",
    "topics",
    "messages",
    "timers",
    "schedules",
    "jobs",
    "clients",
    "brokers",
    "replicas",
    "controllers",
    "alerts",
    "access",
)
SERIOUS: Final = ("serious", "critical")
#: Maximum wait for a part of a page, and the interval of checks.
WAIT_S = 30.0
LOOK_MS = 10
DESKTOP: Final[ViewportSize] = {"width": 1280, "height": 860}
PHONE: Final[ViewportSize] = {"width": 400, "height": 860}


class Visit:
    """Pages of one console, and their faults."""

    def __init__(
        self, browser: Browser, address: str, folder: Path, theme: str, allows: tuple[str, ...] = ()
    ) -> None:
        self.page: Page = browser.new_page(viewport=DESKTOP, color_scheme=theme)  # type: ignore[arg-type]
        self.address = f"http://{address}/"
        self.folder = folder
        self.wrong: list[str] = []
        self.seconds: dict[str, float] = {}
        self.page.on("console", self._told)
        self.page.on("pageerror", lambda error: self.wrong.append(f"error: {error}"))
        self.page.on("request", self._asked)
        self._allows = allows

    def open(self, name: str, view: str, wait: str = "main h1") -> Page:
        began = time.monotonic()
        self.page.goto(f"{self.address}#/{view}")
        if self.seconds:
            # Only the part behind # has changed, which loads nothing.
            self.page.reload()
        self.wait(wait)
        self.wait("main:not(:has-text('Loading…'))")
        self.seconds[name] = time.monotonic() - began
        self.take(name)
        return self.page

    def take(self, name: str) -> None:
        """Take pictures of the page as it is, and inspect it."""
        self.page.wait_for_timeout(300)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=self.folder / f"{name}.png", full_page=True)
        found = Axe().run(self.page).response["violations"]
        for each in found:
            if each["impact"] in SERIOUS:
                places = ", ".join(str(node["target"]) for node in each["nodes"][:3])
                self.wrong.append(f"{name}: axe: {each['id']} ({each['impact']}): {places}")
        self._on_a_phone(name)

    def _on_a_phone(self, name: str) -> None:
        """The same page at 400 px, where nothing may be wider than the screen."""
        self.page.set_viewport_size(PHONE)
        self.page.wait_for_timeout(300)
        if self.page.evaluate("document.documentElement.scrollWidth > innerWidth"):
            self.wrong.append(f"{name}: wider than a phone")
        self.page.screenshot(path=self.folder / f"{name}-phone.png", full_page=True)
        self.page.set_viewport_size(DESKTOP)

    def wait(self, selector: str) -> None:
        """Wait for an element. Playwright polls with growing pauses, which would dominate the measured time, and it
        would evaluate a function, which the pages forbid."""
        until = time.monotonic() + WAIT_S
        while not self.page.locator(selector).count():
            assert time.monotonic() < until, f"{self.page.url} has no {selector}"
            self.page.wait_for_timeout(LOOK_MS)

    def _told(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not any(each in message.text for each in self._allows):
            self.wrong.append(f"{self.page.url}: {message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        if not request.url.startswith(self.address):
            self.wrong.append(f"{self.page.url}: asked for {request.url}")
