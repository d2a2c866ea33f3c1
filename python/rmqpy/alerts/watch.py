"""The watch: evaluates alert rules against a cluster, and delivers notices.

Owns an admin connection, the state and the pending notices, bounded for each receiver. Runs on its own thread and event
loop, so that slow servers and receivers delay nothing else. `status`, `silence` and `test` may be called from any event
loop.
"""

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Coroutine
from http.client import HTTPException
from typing import Any, Final, NamedTuple, TypeVar

from rmqpy.admin.checks import CheckResult
from rmqpy.admin.client import AsyncAdmin
from rmqpy.admin.connection import note_missing
from rmqpy.alerts.receivers import deliver
from rmqpy.alerts.rules import AlertConfig, Receiver
from rmqpy.alerts.state import AlertState, Fact, IsUnknown, Notice, facts_of_checks, facts_of_groups
from rmqpy.config.client import ClientConfig
from rmqpy.errors import ConfigError, RocketMQError
from rmqpy.remoting.waiting import wait_at_most

log = logging.getLogger(__name__)

T = TypeVar("T")

#: Notices that wait for a receiver; the oldest are dropped.
PENDING_MAX: Final = 100
SILENCE_S_MAX: Final = 7 * 86_400.0
#: Check names whose failure means that other checks of the broker are unknown.
_UNREACHABLE: Final = "broker "


class AlertRow(NamedTuple):
    """An alert that is pending or firing."""

    id: str
    rule: str
    subject: str
    level: str
    found: str
    advice: str
    since_ms: int
    #: Whether it has been reported.
    is_firing: bool
    silent_until_ms: int | None


class ReceiverRow(NamedTuple):
    """A receiver, without secrets."""

    name: str
    target: str
    #: Notices not delivered yet, and the last failure.
    pending: int
    fault: str | None


class AlertStatus(NamedTuple):
    """All rules, alerts and receivers."""

    rules: list[str]
    alerts: list[AlertRow]
    receivers: list[ReceiverRow]


class AlertWatch:
    """Evaluates rules until stopped."""

    def __init__(self, config: AlertConfig, client: ClientConfig) -> None:
        self._config = config
        self._client = client
        self._state = AlertState(config)
        self._pending: dict[str, deque[Notice]] = {
            name: deque(maxlen=PENDING_MAX) for name in config.receivers
        }
        self._faults: dict[str, str] = {}
        self._loop = asyncio.new_event_loop()
        self._is_over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="rmqpy-alerts", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread; notices in delivery get their time. Idempotent."""
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._is_over.set)
            await asyncio.to_thread(self._thread.join)

    async def status(self) -> AlertStatus:
        """Return all rules, alerts and receivers."""
        return await self._called(self._status())

    async def silence(self, key: str, seconds: float) -> None:
        """Report nothing about an alert or a rule for so long; 0 ends the silence. Raises `ConfigError`."""
        await self._called(self._silence(key, seconds))

    async def test(self, receiver: str) -> None:
        """Send a test notice now. Raises `ConfigError` with the reason of a failure."""
        await self._called(self._test(receiver))

    async def _called(self, work: Coroutine[Any, Any, T]) -> T:
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._watch())

    async def _watch(self) -> None:
        # Servers that do not answer delay the others only shortly.
        note_missing()
        async with AsyncAdmin(self._client) as admin:
            while not self._is_over.is_set():
                try:
                    await self._look(admin)
                except Exception:
                    log.exception("cannot evaluate the alert rules, retrying")
                await wait_at_most(self._is_over, self._config.every)

    async def _look(self, admin: AsyncAdmin) -> None:
        rules = self._config.rules
        checks: list[CheckResult] = []
        lags, letters = {}, {}
        are_checks_unknown = are_groups_unknown = True
        missing = note_missing()
        if any(not rule.is_of_groups for rule in rules):
            checks = await admin.health()
            # Brokers cannot be checked without a name server.
            are_checks_unknown = all(each.check.startswith("name server") for each in checks)
        if any(rule.is_of_groups for rule in rules):
            missing.clear()
            try:
                lags = {each.group: each.lag for each in await admin.group_summaries()}
                letters = {each.group: each.messages for each in await admin.dead_letters()}
                are_groups_unknown = bool(missing)
            except RocketMQError as error:
                log.warning("groups cannot be checked: %s", error)
        unreachable = frozenset(
            each.check.split()[1]
            for each in checks
            if each.level == "bad" and each.check.startswith(_UNREACHABLE)
        )
        facts: list[Fact] = [*facts_of_checks(rules, checks), *facts_of_groups(rules, lags, letters)]
        unknown = IsUnknown(are_checks_unknown, are_groups_unknown, unreachable)
        for notice in self._state.step(time.time(), facts, unknown):
            log.warning("alert %s: %s: %s", notice.kind, notice.subject, notice.found)
            for name in notice.to or self._config.receivers:
                self._pending[name].append(notice)
        await asyncio.gather(*(self._deliver(each) for each in self._config.receivers.values()))

    async def _deliver(self, receiver: Receiver) -> None:
        """Send what waits for a receiver, in order; what fails is retried with the next evaluation."""
        pending = self._pending[receiver.name]
        while pending:
            fault = await self._sent(receiver, pending[0])
            if fault is not None:
                if receiver.name not in self._faults:
                    log.warning("receiver %s: %s; retrying", receiver.name, fault)
                self._faults[receiver.name] = fault
                return
            pending.popleft()
            if self._faults.pop(receiver.name, None) is not None:
                log.info("receiver %s takes notices again", receiver.name)

    async def _sent(self, receiver: Receiver, notice: Notice) -> str | None:
        try:
            await asyncio.to_thread(deliver, receiver, notice, self._config.console_url)
        except (OSError, HTTPException, ValueError) as error:
            return str(getattr(error, "reason", None) or error)
        return None

    async def _status(self) -> AlertStatus:
        rows = []
        for key, each in self._state.active.items():
            fact, until = each.fact, self._state.silent_until(each.fact)
            rows.append(
                AlertRow(
                    key,
                    fact.rule.name,
                    fact.subject,
                    fact.level,
                    fact.found,
                    fact.advice,
                    round(each.since * 1_000),
                    each.reported is not None,
                    None if until is None else round(until * 1_000),
                )
            )
        receivers = [
            ReceiverRow(name, each.target, len(self._pending[name]), self._faults.get(name))
            for name, each in self._config.receivers.items()
        ]
        return AlertStatus([rule.name for rule in self._config.rules], rows, receivers)

    async def _silence(self, key: str, seconds: float) -> None:
        if key not in self._state.active and key not in {rule.name for rule in self._config.rules}:
            raise ConfigError("no alert or rule has this name")
        if not self._state.silence(key, time.time() + min(seconds, SILENCE_S_MAX)):
            raise ConfigError("too many silences", hint="end some first")

    async def _test(self, name: str) -> None:
        receiver = self._config.receivers.get(name)
        if receiver is None:
            raise ConfigError("no receiver has this name", hint=f"known: {', '.join(self._config.receivers)}")
        notice = Notice("test", "test", "test", "test", "warn", "this is a test", "nothing to do", 0.0, ())
        if (fault := await self._sent(receiver, notice)) is not None:
            raise ConfigError(f"receiver {name}: {fault}")
