"""Policies: plug-ins that are asked before topics and groups are created or changed.

Each policy has a thread, so that a blocked one blocks nothing else: the control plane waits for the policy's time
limit, and then follows its declared default. Threads: the event loop's; one for each policy.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final

from rmqpy.control.plugins.guard import Guard
from rmqpy.control.plugins.threads import PluginThread
from rmqpy.plugins import GroupRequest, Policy, TopicRequest
from rmqpy.protocol.codes import ResponseCode
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: The most requests that wait for one policy.
ASKED_MAX: Final = 256
#: The most characters of a reason that a client gets.
REASON_CHARS_MAX: Final = 500
_LOOK_SECONDS: Final = 0.2

_Call = Callable[[], str | None]


class PolicyPart:
    """One policy, with its thread."""

    def __init__(self, guard: Guard, plugin: Policy) -> None:
        self.guard, self.plugin = guard, plugin
        self._asked: queue.Queue[tuple[str, _Call, Future[str | None]]] = queue.Queue(ASKED_MAX)
        self._thread = PluginThread(guard.name, "ask", self._run)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    async def stop(self) -> None:
        """End the thread."""
        await self._thread.stop()

    async def expect(self, what: str, name: str, call: _Call) -> None:
        """Ask about a topic or group; return if it is allowed, else raise `Refused`."""
        guard, plugin = self.guard, self.plugin
        if not guard.breaker.admits():
            self._follow_default(what, name)
            return
        answer: Future[str | None] = Future()
        try:
            self._asked.put_nowait((what, call, answer))
            reason = await asyncio.wait_for(asyncio.wrap_future(answer), plugin.time_limit)
        except asyncio.CancelledError:
            guard.breaker.abandoned()
            raise
        except Exception as error:
            guard.failed(what, self._reason(error, answer))
            self._follow_default(what, name)
        else:
            guard.breaker.succeeded()
            if reason is not None:
                guard.count(refusals=1)
                raise Refused(
                    ResponseCode.NO_PERMISSION,
                    f"plug-in {guard.name} refuses {what} {name}: {reason[:REASON_CHARS_MAX]}",
                )

    def _reason(self, error: Exception, answer: Future[str | None]) -> Exception:
        """Return the error to log, and count a time-out."""
        if isinstance(error, queue.Full):
            return RuntimeError(f"{ASKED_MAX} requests wait for it")
        # The plug-in may also raise this class.
        if isinstance(error, TimeoutError) and (answer.cancelled() or not answer.done()):
            self.guard.count(timeouts=1)
            return TimeoutError(f"no answer within {self.plugin.time_limit:g} s")
        return error

    def _follow_default(self, what: str, name: str) -> None:
        if self.plugin.on_failure == "refuse":
            self.guard.count(refusals=1)
            raise Refused(
                ResponseCode.SYSTEM_BUSY,
                f"plug-in {self.guard.name} cannot decide about {what} {name} now, and refuses until it can; see the "
                "broker's log",
            )
        log.warning("plug-in %s cannot decide about %s %s, which is allowed", self.guard.name, what, name)

    def _run(self, stop: threading.Event) -> None:
        guard = self.guard
        if not guard.open(stop):
            return
        while not stop.is_set():
            try:
                what, call, answer = self._asked.get(timeout=_LOOK_SECONDS)
            except queue.Empty:
                continue
            # False after the time limit.
            if answer.set_running_or_notify_cancel():
                self._answer(what, call, answer)
        guard.close()

    def _answer(self, what: str, call: _Call, answer: Future[str | None]) -> None:
        with self.guard.running(what):
            try:
                reason = call()
                if reason is not None and not isinstance(reason, str):
                    raise TypeError(f"{what} must return text or None, not {type(reason).__name__}")
            except Exception as error:
                answer.set_exception(error)
            # SystemExit would end the thread in silence, and the loop.
            except BaseException as error:
                answer.set_exception(RuntimeError(repr(error)))
            else:
                answer.set_result(reason)


class Policies:
    """All policies of a broker, in the order of the setting. Without any, every call returns immediately."""

    def __init__(self, parts: Sequence[PolicyPart]) -> None:
        self._of_topics = [each for each in parts if type(each.plugin).topic is not Policy.topic]
        self._of_groups = [each for each in parts if type(each.plugin).group is not Policy.group]

    async def topic(self, request: TopicRequest) -> None:
        """Return if all policies allow a topic. Raises `Refused` with the reason of the first that does not."""
        for each in self._of_topics:
            await each.expect("topic", request.name, partial(each.plugin.topic, request))

    async def group(self, request: GroupRequest) -> None:
        """Return if all policies allow a group. Raises `Refused` with the reason of the first that does not."""
        for each in self._of_groups:
            await each.expect("group", request.name, partial(each.plugin.group, request))
