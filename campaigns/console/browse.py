"""A tour of every page of the console in Chromium: empty, busy, large and impaired clusters, a full disk, a dead
master, a paused slave, no servers at all, and the server of the console gone.

`make campaign NAME=screenshots` writes the pictures to target/screenshots. It exits with code 1 on a message of the
browser's console, a request to another host, a failed request, or a serious finding of axe. For the large cluster it
prints the time from the address to the last row of each page, and the server's memory before and after.
"""

import argparse
import math
import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, sync_playwright

import rmqpy
from benchmarks.waiting import until
from campaigns.console import picture
from campaigns.console.clusters import busy, elected, impaired, large
from campaigns.console.states import visit_gone, visit_state
from campaigns.console.visit import LISTS, Visit
from console.hostile import TEXTS
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.server import Standalone, Thread
from rmqpy.testing import broker

#: The texts with which pages report the faults of a cluster.
IMPAIRED: Final = {
    "overview": (
        "did not answer in time",
        "start it, or correct -n",
        "delete other files there, or move the store to a larger disk",
        "rmqpy store compare",
    ),
    "groups": ("The data of these brokers is missing:", "did not answer in time"),
    "topics": ("The data of these brokers is missing:", "did not answer in time"),
    "dead-letters": ("The data of these brokers is missing:",),
    "clients": ("The data of these brokers is missing:",),
    "timers": ("The data of these brokers is missing:",),
    "schedules": ("The data of these brokers is missing:",),
    "jobs": ("The data of these brokers is missing:",),
    "controllers": ("The data of these brokers is missing:",),
    "topics/orders": ("The data of these brokers is missing:",),
    "groups/billing": ("The data of these brokers is missing:",),
    "brokers": ("does not answer", "refuses messages"),
    "replicas": ("differ before",),
}
#: Seconds of traffic for the picture of the overview.
TRAFFIC_S: Final = 24.0
#: Topics and groups of the busy cluster.
BUSY_TOPICS: Final = 100


def fail(message: rmqpy.ReceivedMessage) -> None:
    raise ValueError(
        f"no customer {message.text()[-9:-6]!r}"
        if "order" in message.text()
        else "<img src=x onerror=alert(1)>"
    )


def visit_busy(browser: Browser, folder: Path, theme: str) -> Visit:
    with busy(BUSY_TOPICS) as server:
        assert server.http is not None
        consumer = rmqpy.PushConsumer("shipping", server.namesrv, start_from="earliest", max_attempts=1)
        consumer.on("orders", handler=fail)
        with consumer, rmqpy.Admin(server.namesrv) as admin:
            # The consumer ends then, because it would give up the resent messages again.
            until(lambda: any(each.messages >= 300 + len(TEXTS) for each in admin.dead_letters()))
            newest = next(iter(admin.tail("orders", 1)))
        with rmqpy.PullConsumer("audit", server.namesrv, start_from="earliest") as audit:
            audit.subscribe("orders")
            audit.poll(timeout=5)
            audit.commit()
            visit = Visit(browser, server.http, folder, theme)
            draw_overview(visit, server)
            for view in LISTS:
                visit.open(view, view)
            visit.open("dead-letters-of", "dead-letters/shipping", "table")
            page = visit.page
            page.get_by_role("button", name="Select this page").click()
            page.get_by_role("button", name="Send 100 again").click()
            page.screenshot(path=folder / "resend.png")
            page.get_by_role("button", name="Send", exact=True).click()
            page.wait_for_selector("text=100 of 100 were sent again")
            page.wait_for_selector("td .badge.ok")
            visit.page.screenshot(path=folder / "resent.png")
            visit.open("group", "groups/audit", "table")
            page.get_by_role("button", name="Preview").click()
            page.wait_for_selector("text=Reset the group")
            page.screenshot(path=folder / "preview.png", full_page=True)
            visit.open("topic", "topics/orders", "table")
            page.get_by_role("button", name="Follow").click()
            page.wait_for_selector("text=live")
            with rmqpy.Producer(server.namesrv) as producer:
                # The stream follows the topic a moment after it has begun.
                while not page.get_by_text("news of today").count():
                    producer.send("orders", b"news of today")
                    page.wait_for_timeout(100)
            visit.open("search", "messages?topic=orders&text=c-3&scan=1000", ".message")
            visit.open("message", f"messages/{newest.offset_message_id}", "pre.body")
            visit.open("broker", "brokers/broker-a", "table")
            delete_schedule(visit)
            keys(visit)
            if page.evaluate("window.hacked") is not None:
                visit.wrong.append("a hostile text ran")
            visit.page.close()
    return visit


def draw_overview(visit: Visit, server: Standalone) -> None:
    """The picture for README: the overview while messages come and go."""
    visit.open("overview", "overview")
    with rmqpy.Producer(server.namesrv) as producer:
        until = time.monotonic() + TRAFFIC_S
        while (left := until - time.monotonic()) > 0:
            for _ in range(round(20 + 15 * math.sin(left))):
                producer.send("orders-00001", b"traffic")
            visit.page.wait_for_timeout(100)
    picture.write(visit.page, visit.folder / "overview.svg", 760)


def delete_schedule(visit: Visit) -> None:
    """Pause a schedule, then delete it after the question."""
    page = visit.open("schedules-busy", "schedules", "table")
    page.get_by_role("button", name="pause nightly-report").click()
    page.wait_for_selector("td .done:text('paused')")
    page.get_by_role("button", name="delete nightly-report").click()
    page.screenshot(path=visit.folder / "delete-schedule.png")
    page.get_by_label("Type nightly-report to confirm").fill("nightly-report")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.wait_for_selector("text=The schedule nightly-report was deleted.")
    page.wait_for_selector("table:not(:has-text('nightly-report'))")


def keys(visit: Visit) -> None:
    """Check that pages are reached without a pointer."""
    visit.page.keyboard.press("g")
    visit.page.keyboard.press("t")
    visit.page.wait_for_selector("h1:text-is('Topics')")
    visit.page.wait_for_selector("table")
    visit.page.keyboard.press("/")
    visit.page.keyboard.type("00001")
    if visit.page.evaluate("document.activeElement.tagName") != "INPUT":
        visit.wrong.append("the key / leads to no filter")


def visit_empty(browser: Browser, folder: Path, theme: str) -> Visit:
    with broker(httpPort=0) as server:
        assert server.http is not None
        visit = Visit(browser, server.http, folder, theme)
        for view in LISTS:
            visit.open(view, view)
        visit.page.close()
    return visit


def visit_without_servers(browser: Browser, folder: Path, theme: str) -> Visit:
    thread = Thread(dashboard := Dashboard(ClientConfig(namesrv="127.0.0.1:1", connect_timeout=0.5), port=0))
    thread.start()
    try:
        # A browser logs every error response.
        visit = Visit(browser, dashboard.address, folder, theme, ("502",))
        for view in LISTS:
            visit.open(view, view)
        visit.page.close()
    finally:
        thread.stop()
    return visit


def visit_impaired(browser: Browser, folder: Path, theme: str) -> Visit:
    with impaired() as namesrv:
        config = ClientConfig(namesrv=namesrv, connect_timeout=1, request_timeout=1)
        thread = Thread(dashboard := Dashboard(config, port=0))
        thread.start()
        try:
            visit = Visit(browser, dashboard.address, folder, theme)
            for view in (*LISTS, "topics/orders", "groups/billing"):
                page = visit.open(view.replace("/", "-"), view, "#strip .state.bad:visible")
                for text in IMPAIRED.get(view, ()):
                    if not page.get_by_text(text).count():
                        visit.wrong.append(f"{view} does not say {text!r}")
            visit.page.close()
        finally:
            thread.stop()
    return visit


def visit_elected(browser: Browser, folder: Path, theme: str) -> Visit:
    with elected() as namesrv:
        thread = Thread(dashboard := Dashboard(ClientConfig(namesrv=namesrv), port=0, allow_changes=True))
        thread.start()
        try:
            visit = Visit(browser, dashboard.address, folder, theme)
            page = visit.open("controllers", "controllers", "table")
            for text in ("leads", "in sync", "arrive"):
                if not page.get_by_text(text, exact=True).count():
                    visit.wrong.append(f"controllers does not say {text!r}")
            visit.open("replicas", "replicas", "table")
            visit.page.close()
        finally:
            thread.stop()
    return visit


def visit_large(browser: Browser, folder: Path, theme: str, scale: int) -> Visit:
    topics, groups, messages = scale, max(1, scale // 5), 100 * scale
    with large(topics, groups, messages) as cluster:
        before = cluster.private_mib()
        visit = Visit(browser, cluster.http, folder, theme)
        first: float | None = None
        for view in LISTS:
            visit.open(view, view)
            first = first or cluster.private_mib()
        visit.page.close()
        print(
            f"{topics:,} topics, {groups:,} groups, {messages:,} messages; load average {os.getloadavg()[0]:.1f}"
        )
        print("| page | first view, s |\n|---|--:|")
        print("\n".join(f"| {view} | {seconds:.2f} |" for view, seconds in visit.seconds.items()))
        print(
            f"private memory of the server: {before:.1f} MiB before the first connection, {first:.1f} after the first "
            f"page, {cluster.private_mib():.1f} after all"
        )
    return visit


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, default=Path("target/screenshots"))
    parser.add_argument("--scale", type=int, default=1_000, help="topics of the large cluster (1000)")
    parser.add_argument("--only", nargs="*", default=[], help="some of the visits")
    given = parser.parse_args()
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no Chromium: apt-get install chromium")
    wrong: list[str] = []
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        for theme in ("light", "dark"):
            visits: dict[str, Any] = {
                "empty": lambda to, theme=theme: visit_empty(browser, to, theme),
                "without-servers": lambda to, theme=theme: visit_without_servers(browser, to, theme),
                "impaired": lambda to, theme=theme: visit_impaired(browser, to, theme),
                "full-disk": lambda to, theme=theme: visit_state(browser, to, theme, "full-disk"),
                "dead-master": lambda to, theme=theme: visit_state(browser, to, theme, "dead-master"),
                "slave-behind": lambda to, theme=theme: visit_state(browser, to, theme, "slave-behind"),
                "gone": lambda to, theme=theme: visit_gone(browser, to, theme),
                "elected": lambda to, theme=theme: visit_elected(browser, to, theme),
                "busy": lambda to, theme=theme: visit_busy(browser, to, theme),
                "large": lambda to, theme=theme: visit_large(browser, to, theme, given.scale),
            }
            for name, visiting in visits.items():
                # The large cluster takes long to make and is visited in one theme.
                if (not given.only or name in given.only) and (theme, name) != ("dark", "large"):
                    visit = visiting(given.folder / theme / name)
                    wrong += [f"{theme}, {name}: {each}" for each in visit.wrong]
                    slowest = max(visit.seconds, key=lambda each: visit.seconds[each])
                    print(
                        f"{theme}, {name}: {len(visit.seconds)} pages, {slowest} took {visit.seconds[slowest]:.2f} s"
                    )
        browser.close()
    print("\n".join(wrong) or f"nothing wrong; pictures in {given.folder}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
