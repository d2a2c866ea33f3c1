"""Twelve tasks of an operator in Chromium, with counts of clicks and fields, and one task done with the keyboard alone.

`make campaign NAME=console-tasks` runs them and prints a table. Each task starts at the overview and ends with a check
of its result. In the keyboard task each element has to show its focus, and axe inspects each step. A task that fails
ends the run with exit code 1.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

import rmqpy
from benchmarks.waiting import until
from rmqpy.server import Standalone
from rmqpy.testing import broker

LETTERS: Final = 100
#: Maximum presses of Tab to the next element of a task.
REACH_MAX: Final = 40
SERIOUS: Final = ("serious", "critical")


class Hand:
    """A user of the page, whose clicks, fields and choices are counted."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.clicks = 0
        self.fields = 0

    def press(self, target: Locator) -> None:
        target.click()
        self.clicks += 1

    def button(self, name: str, *, exact: bool = True) -> None:
        self.press(self.page.get_by_role("button", name=name, exact=exact).first)

    def link(self, name: str) -> None:
        self.press(self.page.get_by_role("link", name=name, exact=True).first)

    def fill(self, label: str, text: str) -> None:
        self.page.get_by_label(label, exact=True).last.fill(text)
        self.fields += 1

    def choose(self, label: str, text: str) -> None:
        self.page.locator("label").filter(has=self.page.get_by_text(label, exact=True)).last.locator(
            "select"
        ).select_option(text)
        self.clicks += 2

    def sees(self, text: str) -> None:
        expect(self.page.get_by_text(text).first).to_be_visible()


def find_by_key(hand: Hand, _: Standalone) -> None:
    """find a message by its key, and read it"""
    hand.link("Messages")
    hand.fill("Topic", "orders")
    hand.fill("Or the key", "A-42")
    hand.button("Search")
    hand.press(hand.page.locator(".message a").first)
    hand.sees('"order": 42')


def why_a_group_lags(hand: Hand, _: Standalone) -> None:
    """see why a group lags: what the threads of its member do"""
    hand.link("audit")
    hand.sees("pending messages, the oldest for")
    hand.button("Thread stacks")
    hand.sees('File "')


def resend_edited(hand: Hand, server: Standalone) -> None:
    """send 100 dead letters again, edited"""
    hand.link("Dead letters")
    hand.link("shipping")
    hand.button("Select this page")
    hand.button(f"Send {LETTERS} again")
    hand.fill("Replace", '"customer"')
    hand.fill("with", '"client"')
    hand.fill("Messages per second", "1000")
    hand.button("Send")
    hand.sees(f"{LETTERS} of {LETTERS} were sent again")
    with rmqpy.Admin(server.namesrv) as admin:
        bodies = [each.text() for each in admin.messages_between("%RETRY%shipping")]
    assert len([each for each in bodies if '"client"' in each]) == LETTERS


def reset_to_yesterday(hand: Hand, server: Standalone) -> None:
    """reset a group to yesterday"""
    hand.link("Groups")
    hand.link("billing")
    hand.button("Preview")
    hand.button("Reset the group")
    hand.fill("Type billing to confirm", "billing")
    hand.button("Reset")
    hand.sees("The group was reset.")
    with rmqpy.Admin(server.namesrv) as admin:
        assert sum(each.offset for each in admin.progress("billing", "orders")) == 0


def one_queue_to_an_offset(hand: Hand, server: Standalone) -> None:
    """set one queue of a group to an offset"""
    hand.link("Groups")
    hand.link("billing")
    hand.choose("To", "offset")
    hand.choose("Queue", "broker-a\n1")
    hand.fill("Offset", "7")
    hand.button("Preview")
    hand.button("Reset the group")
    hand.fill("Type billing to confirm", "billing")
    hand.button("Reset")
    hand.sees("The group was reset.")
    with rmqpy.Admin(server.namesrv) as admin:
        assert [each.offset for each in admin.progress("billing", "orders") if each.queue_id == 1] == [7]


def send_a_message(hand: Hand, _: Standalone) -> None:
    """send a test message"""
    hand.link("Topics")
    hand.link("orders")
    hand.button("Send a message")
    hand.fill("Body", "a test")
    hand.button("Send")
    hand.sees("The message was sent to orders.")
    hand.sees("a test")


def send_a_copy(hand: Hand, _: Standalone) -> None:
    """send a copy of a shown message"""
    hand.link("Topics")
    hand.link("orders")
    hand.press(hand.page.locator(".message", has_text="order").locator("a").first)
    hand.link("Send a copy")
    hand.button("Send")
    hand.sees("Id of the producer")


def follow_a_topic(hand: Hand, server: Standalone) -> None:
    """watch new messages of a topic as they come"""
    hand.link("Topics")
    hand.link("orders")
    hand.button("Follow")
    hand.sees("live")
    with rmqpy.Producer(server.namesrv) as producer:
        for number in range(20):
            producer.send("orders", f"news {number}".encode())
            time.sleep(0.05)
    hand.sees("news 19")


def make_a_topic(hand: Hand, server: Standalone) -> None:
    """make a topic of type FIFO"""
    hand.link("Topics")
    hand.button("Create topic")
    hand.fill("Name", "made-here")
    hand.choose("Type", "FIFO")
    hand.button("Create")
    hand.sees("The topic made-here was created.")
    hand.sees("0 messages in")
    with rmqpy.Admin(server.namesrv) as admin:
        assert admin.topic_types()["made-here"] == "FIFO"


def search_a_text(hand: Hand, _: Standalone) -> None:
    """find messages by a text in their bodies, and see what was not searched"""
    hand.link("Topics")
    hand.link("orders")
    hand.link("Search")
    hand.fill("Text in body, keys or properties", "c-3")
    hand.button("Search")
    hand.sees("messages were searched")


def what_a_user_may(hand: Hand, _: Standalone) -> None:
    """learn whether a user may send to a topic, and by which rule"""
    hand.link("Access")
    hand.fill("User", "ann")
    hand.fill("Resource", "Topic:orders")
    hand.button("Check permission")
    hand.sees("Allow of Pub")


def change_a_setting(hand: Hand, server: Standalone) -> None:
    """keep messages for 48 hours, at a broker that runs"""
    hand.link("Brokers")
    hand.link("broker-a")
    hand.fill("Filter", "fileReservedTime")
    hand.button("change fileReservedTime")
    hand.fill("Value", "48")
    hand.fill("Type broker-a to confirm", "broker-a")
    hand.press(hand.page.locator("dialog button[type=submit]"))
    expect(hand.page.locator("dialog")).to_have_count(0)
    hand.sees("changed to 48")
    with rmqpy.Admin(server.namesrv) as admin:
        assert admin.broker_config("broker-a")["fileReservedTime"] == "48"


class Keys:
    """A user without a pointer."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.presses = 0

    def press(self, *keys: str) -> None:
        for key in keys:
            self.page.keyboard.press(key)
            self.presses += 1

    def write(self, text: str) -> None:
        self.page.keyboard.type(text)
        self.presses += len(text)

    def reach(self, target: Locator, key: str = "Tab") -> None:
        """Press Tab until the target has the focus, and see that it shows it."""
        expect(target).to_be_visible()
        for _ in range(REACH_MAX):
            if target.evaluate("element => element === document.activeElement"):
                break
            self.press(key)
        else:
            raise AssertionError(f"{target} is not reached by {REACH_MAX} times {key}")
        shown = target.evaluate(
            "element => { const { outlineStyle, outlineWidth } = getComputedStyle(element);"
            " return outlineStyle !== 'none' && parseFloat(outlineWidth) > 0; }"
        )
        assert shown, f"{target} does not show that it has the focus"

    def inspect(self) -> None:
        """See that axe finds nothing serious."""
        found = [each for each in Axe().run(self.page).response["violations"] if each["impact"] in SERIOUS]
        assert not found, [(each["id"], [node["target"] for node in each["nodes"]]) for each in found]


def resend_by_keys(page: Page, server: Standalone) -> int:
    """send a dead letter again, edited, by keys alone"""
    keys = Keys(page)
    keys.press("g", "d")
    keys.reach(page.get_by_role("link", name="shipping", exact=True))
    keys.inspect()
    keys.press("Enter")
    keys.reach(page.get_by_role("checkbox").first)
    keys.press("Space")
    keys.reach(page.get_by_role("button", name="Send 1 again"), "Shift+Tab")
    keys.inspect()
    keys.press("Enter")
    body = page.get_by_label("Body", exact=True)
    keys.reach(body)
    keys.press("Control+End")
    keys.write(" by keys")
    keys.reach(page.locator("dialog").get_by_role("button", name="Send", exact=True))
    keys.inspect()
    keys.press("Enter")
    expect(page.get_by_text("1 of 1 were sent again").first).to_be_visible()
    keys.inspect()
    with rmqpy.Admin(server.namesrv) as admin:
        bodies = [each.text() for each in admin.messages_between("%RETRY%shipping")]
    assert len([each for each in bodies if each.endswith(" by keys")]) == 1
    return keys.presses


TASKS: Final[tuple[Callable[[Hand, Standalone], None], ...]] = (
    find_by_key,
    why_a_group_lags,
    resend_edited,
    reset_to_yesterday,
    one_queue_to_an_offset,
    send_a_message,
    send_a_copy,
    follow_a_topic,
    make_a_topic,
    search_a_text,
    what_a_user_may,
    change_a_setting,
)


def refuse(message: rmqpy.ReceivedMessage) -> None:
    raise ValueError("no such customer")


@contextmanager
def cluster() -> Iterator[Standalone]:
    """Messages, a group that is behind and has a member, dead letters, a user."""
    with (
        broker(httpPort=0, httpAllowChanges=True) as server,
        rmqpy.Admin(server.namesrv) as admin,
        rmqpy.Producer(server.namesrv, group="shop") as producer,
    ):
        admin.create_topic("orders", read_queues=2, write_queues=2)
        admin.create_group("billing")
        admin.create_user("ann", "ann-secret")
        admin.set_rule("ann", "Topic:ord*", ["Pub"])
        for number in range(LETTERS):
            body = f'{{"order": {number}, "customer": "c-{number % 7}"}}'
            producer.send("orders", body.encode(), tag="paid", keys=f"A-{number}")
        consumer = rmqpy.PushConsumer("shipping", server.namesrv, start_from="earliest", max_attempts=1)
        consumer.on("orders", handler=refuse)
        with consumer:
            until(lambda: any(each.messages == LETTERS for each in admin.dead_letters()))
        with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as billing:
            billing.commit(dict.fromkeys(billing.queues("orders"), 40))
        with rmqpy.PullConsumer("audit", server.namesrv, start_from="earliest") as audit:
            audit.subscribe("orders")
            audit.poll(timeout=5)
            audit.commit(dict.fromkeys(audit.queues("orders"), 1))
            yield server


def opened(browser: Browser, server: Standalone) -> Page:
    """The overview."""
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(10_000)
    page.goto(f"http://{server.http}/")
    page.wait_for_selector("main:not(:has-text('Loading…'))")
    return page


def main() -> None:
    found = shutil.which("chromium") or shutil.which("google-chrome")
    if found is None:
        sys.exit("no Chromium: apt-get install chromium")
    failed = 0
    with cluster() as server, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        print("| task | clicks | fields | seconds |\n|---|--:|--:|--:|")
        for task in TASKS:
            page = opened(browser, server)
            hand = Hand(page)
            begun = time.monotonic()
            try:
                task(hand, server)
                outcome = f"{hand.clicks} | {hand.fields} | {time.monotonic() - begun:.1f}"
            except Exception as error:
                failed += 1
                outcome = f"failed: {str(error).splitlines()[0]} | |"
                page.screenshot(path=f"target/task-{task.__name__}.png")
            print(f"| {task.__doc__} | {outcome} |", flush=True)
            page.close()
        page = opened(browser, server)
        try:
            print(f"{resend_by_keys.__doc__}: {resend_by_keys(page, server)} presses")
        except Exception as error:
            failed += 1
            print(f"{resend_by_keys.__doc__}: failed: {str(error).splitlines()[0]}")
            page.screenshot(path="target/task-resend_by_keys.png")
        browser.close()
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
