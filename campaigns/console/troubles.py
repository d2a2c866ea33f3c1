"""Clusters in one state of trouble, with a console: `make campaign-console-troubles STATE=dead-master`.

The servers run on loopback until Ctrl-C or SIGTERM, at most for an hour. With `--check` a browser opens the first view
instead, looks for the sentence in the status strip, and follows its buttons; exit code 1 if something is missing.
"""

import argparse
import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from playwright.sync_api import Browser, Page, sync_playwright

import certificates
import rmqpy
from benchmarks.waiting import until
from brokerprocess import BrokerProcess, broker_process
from campaigns.console.clusters import on_a_small_disk
from campaigns.election.elected_set import ElectedSet
from rmqpy.config.client import ClientConfig
from rmqpy.console.dashboard import Dashboard
from rmqpy.errors import RocketMQError
from rmqpy.server import Standalone, Thread
from rmqpy.testing import SMALL, Cluster, broker

#: The longest run without `--check`.
RUN_S_MAX: Final = 3_600.0
#: The longest wait for the sentence, from the first view: the strip asks every 10 s.
SHOWN_S_MAX: Final = 30.0
START_S_MAX: Final = 90.0
PAUSE_MS: Final = 100
TOPIC: Final = "orders"
GROUP: Final = "billing"
MESSAGES: Final = 40
POISON: Final = b"poison"
#: The space of the full disk, and what a slave misses.
DISK_MIB: Final = 160
MISSED_MIB: Final = 24
MIB: Final = 1 << 20


class Shown(NamedTuple):
    """Servers in trouble, and how the console has to report it."""

    cluster: ClientConfig
    level: str
    #: Patterns of the sentence, of the remedy, and the titles of the buttons.
    sentence: str
    remedy: str
    buttons: tuple[str, ...]


State = Callable[[Path], AbstractContextManager[Shown]]


@contextmanager
def dead_master(folder: Path) -> Iterator[Shown]:
    """a master killed after some messages, and its slave"""
    with _pair(folder) as (namesrv, master, _):
        _send(namesrv, MESSAGES)
        _in_sync(namesrv)
        master.process.kill()
        yield Shown(
            ClientConfig(namesrv=namesrv),
            "bad",
            r"broker-a has no master: .* is unreachable, slave 1 lost it",
            r"start it, or promote the slave: rmqpy cluster promote broker-a --id 1",
            ("Promote slave 1", "Open replicas"),
        )


@contextmanager
def full_disk(folder: Path) -> Iterator[Shown]:
    """a broker whose messages have filled its disk"""
    small = on_a_small_disk(folder / "broker-a", DISK_MIB)
    with _name_server() as namesrv, broker_process(namesrv, folder, "broker-a", around=small):
        _send(namesrv, MESSAGES)
        refusal = _fill(namesrv, DISK_MIB)
        print(f"the broker refuses messages: {refusal}", flush=True)
        yield Shown(
            ClientConfig(namesrv=namesrv),
            "bad",
            r"disk of broker-a: .* MiB are free: messages are refused",
            r"move the store to a larger disk; the (log is one file|oldest file of the log is)",
            ("Open broker",),
        )


@contextmanager
def poison_message(folder: Path) -> Iterator[Shown]:
    """a message that its handler always refuses, among others that it handles"""
    handled: list[bytes] = []

    def handle(message: rmqpy.ReceivedMessage) -> None:
        if message.body == POISON:
            raise ValueError("no such customer: c-13")
        handled.append(message.body)

    with broker(messageDelayLevel="1s 2s 3s") as server, rmqpy.Admin(server.namesrv) as admin:
        _send(server.namesrv, MESSAGES, POISON)
        consumer = rmqpy.PushConsumer(GROUP, server.namesrv, start_from="earliest", max_attempts=2)
        consumer.on(TOPIC, handler=handle)
        with consumer:
            until(lambda: sum(each.messages for each in admin.dead_letters()) == 1)
            until(lambda: len(handled) == MESSAGES)
            yield Shown(
                ClientConfig(namesrv=server.namesrv),
                "warn",
                rf"dead letters of {GROUP}: 1 message was given up",
                rf"rmqpy dlq list {GROUP}",
                ("Open dead letters",),
            )


@contextmanager
def no_consumers(folder: Path) -> Iterator[Shown]:
    """a group with pending messages and no consumer"""
    with broker() as server:
        _send(server.namesrv, MESSAGES)
        with rmqpy.Admin(server.namesrv) as admin:
            admin.create_group(GROUP)
        with rmqpy.PullConsumer(GROUP, server.namesrv, start_from="earliest") as consumer:
            consumer.commit(dict.fromkeys(consumer.queues(TOPIC), 1))
        yield Shown(
            ClientConfig(namesrv=server.namesrv),
            "warn",
            rf"group {GROUP}: \d+ messages are pending and no member is online",
            rf"start a consumer of {GROUP}",
            ("Open group",),
        )


@contextmanager
def slave_behind(folder: Path) -> Iterator[Shown]:
    """a slave that was paused, and misses many messages"""
    with _pair(folder) as (namesrv, _, slave):
        _send(namesrv, MESSAGES)
        _in_sync(namesrv)
        with slave.silent():
            _send(namesrv, 0, *(_large() for _ in range(MISSED_MIB)))
            yield Shown(
                ClientConfig(namesrv=namesrv),
                "bad",
                r"slave 1 of broker-a: does not answer at .*, silent for \d+ s, at least \d{8} bytes behind its",
                r"resume or restart it",
                ("Open replicas",),
            )


@contextmanager
def expired_certificate(folder: Path) -> Iterator[Shown]:
    """servers whose certificate has expired while they ran"""
    authority = certificates.Authority(folder / "authority")
    files = authority.issue()
    given = {**SMALL, **certificates.settings(files)}
    with Standalone(folder / "data", namesrv_port=0, broker_port=0, **given) as server:
        trusting = ClientConfig(namesrv=server.namesrv, tls=rmqpy.TLS(ca=files.ca))
        _send(trusting, MESSAGES)
        certificates.replace(files, authority.issue("expired-", days=0))
        certificates.wait_until_shown(files.cert, server.namesrv, server.broker)
        yield Shown(
            trusting,
            "bad",
            r"certificate of .*: has expired",
            r"replace the file of tls.server.certPath there",
            # Without a name server that the console trusts, no page has anything to show.
            (),
        )


@contextmanager
def two_brokers_one_name(folder: Path) -> Iterator[Shown]:
    """two unrelated masters of one name at one name server"""
    with _name_server() as namesrv, broker_process(namesrv, folder / "one", "broker-a") as first:
        _send(namesrv, MESSAGES)
        # A broker does not start while another one of its name answers.
        with ExitStack() as stack:
            with first.silent():
                stack.enter_context(broker_process(namesrv, folder / "two", "broker-a"))
            yield Shown(
                ClientConfig(namesrv=namesrv),
                "bad",
                r"two brokers are called broker-a: 127\.0\.0\.1:\d+ and 127\.0\.0\.1:\d+ take each other's place",
                r"give one of them another brokerName",
                ("Open broker",),
            )


@contextmanager
def no_quorum(folder: Path) -> Iterator[Shown]:
    """a set of two brokers whose only controller was killed, after the lease of the master has ended"""
    elected = ElectedSet(folder, 2)
    with ExitStack() as undo:
        elected.start(undo)
        elected.wait_in_sync()
        elected.controllers[0].kill()
        with rmqpy.Admin(elected.namesrv.address) as admin:
            until(lambda: any(each.refuses for each in admin.brokers()))
        yield Shown(
            ClientConfig(namesrv=elected.namesrv.address),
            "bad",
            r"broker-a does not reach its controllers",
            r"start a majority of the controllers, and check controllerAddr",
            ("Open controllers",),
        )


STATES: Final[dict[str, State]] = {
    each.__name__.replace("_", "-"): each
    for each in (
        dead_master,
        full_disk,
        poison_message,
        no_consumers,
        slave_behind,
        expired_certificate,
        two_brokers_one_name,
        no_quorum,
    )
}


@contextmanager
def _name_server() -> Iterator[str]:
    with Cluster(brokers=[]) as cluster:
        yield cluster.namesrv


@contextmanager
def _pair(folder: Path) -> Iterator[tuple[str, BrokerProcess, BrokerProcess]]:
    """Start a name server, a master and its slave."""
    as_slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    with (
        _name_server() as namesrv,
        broker_process(namesrv, folder / "master", "broker-a") as master,
        broker_process(namesrv, folder / "slave", "broker-a", **as_slave) as slave,
    ):
        _in_sync(namesrv)
        yield namesrv, master, slave


def _in_sync(namesrv: str) -> None:
    """Wait until the slave has everything."""
    with rmqpy.Admin(namesrv) as admin:
        until(
            lambda: any(each.in_sync and not each.behind_bytes for each in admin.replicas("broker-a")),
            START_S_MAX,
            failing=RocketMQError,
        )


def _send(cluster: str | ClientConfig, count: int, *more: bytes) -> None:
    """Send messages to the topic, which has two queues, and then `more`."""
    with rmqpy.Admin(cluster) as admin:
        until(lambda: any(each.answers for each in admin.brokers()), START_S_MAX, failing=RocketMQError)
        admin.create_topic(TOPIC, read_queues=2, write_queues=2, exist_ok=True)
    with rmqpy.Producer(cluster, retries=10) as producer:
        for number in range(count):
            producer.send(TOPIC, f'{{"order": {number}}}'.encode(), keys=f"A-{number}")
        for body in more:
            producer.send(TOPIC, body)


def _large() -> bytes:
    """A body that producers cannot compress."""
    return os.urandom(MIB)


def _fill(namesrv: str, mib: int) -> RocketMQError:
    """Send until messages are refused, and return the refusal."""
    with rmqpy.Producer(namesrv, retries=0) as producer:
        for _ in range(mib):
            try:
                producer.send(TOPIC, _large())
            except RocketMQError as error:
                return error
    raise AssertionError(f"the broker accepts {mib} MiB on a disk of that size")


def check(browser: Browser, url: str, state: str, shown: Shown, folder: Path) -> list[str]:
    """Return what the first view lacks."""
    wrong: list[str] = []
    page = browser.new_page(viewport={"width": 1280, "height": 860})
    page.set_default_timeout(SHOWN_S_MAX * 1_000)
    page.on("pageerror", lambda error: wrong.append(f"error of a script: {error}"))
    began = time.monotonic()
    page.goto(url)
    found = page.locator(f"#strip .state.{shown.level}").filter(has_text=re.compile(shown.sentence)).first
    while not found.count() and time.monotonic() - began < SHOWN_S_MAX:
        page.wait_for_timeout(PAUSE_MS)
    seconds = time.monotonic() - began
    folder.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=folder / f"{state}.png", full_page=True)
    print(f"after {seconds:.1f} s the strip of {state} is:")
    print(
        "\n".join(f"    {line}" for line in page.locator("#strip").inner_text().splitlines() if line.strip())
    )
    if not found.count():
        return [*wrong, f"no {shown.level} line of the strip has {shown.sentence!r}"]
    if not re.search(shown.remedy, found.inner_text()):
        wrong.append(f"the remedy is not {shown.remedy!r}")
    buttons = found.locator(".button, button").all_inner_texts()
    if tuple(buttons) != shown.buttons:
        wrong.append(f"the buttons are {buttons}, not {list(shown.buttons)}")
    addresses = [each.get_attribute("href") or "" for each in found.locator("a.button").all()]
    wrong += [fault for address in addresses for fault in _follow(page, url, state, address, folder)]
    page.close()
    return wrong


def _follow(page: Page, url: str, state: str, address: str, folder: Path) -> Iterator[str]:
    """Open the page of a button, and yield its faults."""
    page.goto(f"{url}{address}")
    page.wait_for_selector("main h1")
    page.wait_for_selector("main:not(:has-text('Loading…'))")
    name = re.sub(r"\W+", "-", address).strip("-")
    page.screenshot(path=folder / f"{state}-{name}.png", full_page=True)
    if page.get_by_text("Page not found").count():
        yield f"{address} is not a page"
    if (failed := page.locator("main .box.bad", has_text="Failed: ")).count():
        yield f"{address} fails: {failed.first.inner_text()}"
    if not page.locator("main table").count():
        yield f"{address} shows no table"


def run(state: str, *, is_checked: bool, screenshots: Path) -> list[str]:
    """Start the servers, and check the console or serve it; return its faults."""
    with tempfile.TemporaryDirectory(prefix="rmqpy-trouble-") as name, ExitStack() as stack:
        print(f"{state}: {STATES[state].__doc__}", flush=True)
        shown = stack.enter_context(STATES[state](Path(name)))
        thread = Thread(dashboard := Dashboard(shown.cluster, port=0, allow_changes=True))
        thread.start()
        stack.callback(thread.stop)
        url = f"http://{dashboard.address}/"
        print(
            f"console: {url} (no login, changes allowed); name server: {shown.cluster.namesrv[0]}", flush=True
        )
        if is_checked:
            found = shutil.which("chromium") or shutil.which("google-chrome")
            if found is None:
                return ["no Chromium: apt-get install chromium"]
            with sync_playwright() as playwright:
                arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
                browser = playwright.chromium.launch(executable_path=found, args=arguments)
                wrong = check(browser, url, state, shown, screenshots)
                browser.close()
            return wrong
        print(f"stop with Ctrl-C; it ends by itself after {RUN_S_MAX / 60:.0f} minutes", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            threading.Event().wait(RUN_S_MAX)
    return []


def _end(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("state", choices=STATES)
    parser.add_argument("--check", action="store_true", help="look at the first view instead of serving it")
    parser.add_argument("--screenshots", type=Path, default=Path("target/screenshots/troubles"))
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    try:
        wrong = run(given.state, is_checked=given.check, screenshots=given.screenshots)
    except KeyboardInterrupt:
        sys.exit(f"{given.state}: stopped before it was ready")
    print("\n".join(wrong) or (f"{given.state}: nothing wrong" if given.check else "stopped"))
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
