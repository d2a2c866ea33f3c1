"""Subscriptions of clients to lite topics.

The native module has the table, and gives each message to one client of each group. Here are the rules: which groups
may subscribe, where they begin, and which client loses a lite topic.

Threads: the event loop's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final

from rmqpy._native import LiteConsumers, Offsets, Server, Store
from rmqpy.control.groups.lite_rules import LiteRules, lite_rules
from rmqpy.control.groups.table import Groups
from rmqpy.control.tables.listed import listed
from rmqpy.errors import BrokerError
from rmqpy.protocol import names
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.lite import (
    COMPLETE_ADD,
    COMPLETE_REMOVE,
    PARTIAL_ADD,
    PARTIAL_REMOVE,
    LiteOffset,
    LiteSubscription,
    NotifyUnsubscribeLite,
)
from rmqpy.remoting.server import Refused

log = logging.getLogger(__name__)

#: A client may be this many subscriptions over its quota: it compares its own count, which lags behind.
QUOTA_SLACK: Final = 300
_CLIENTS_NAMED_MAX: Final = 5
_LAST, _FIRST, _END = range(3)


class LiteSubscriptions:
    """Applies changes of subscriptions."""

    def __init__(
        self,
        groups: Groups,
        store: Store,
        offsets: Offsets,
        consumers: LiteConsumers,
        server: Server,
        silent_ms: Callable[[], int],
    ) -> None:
        """A client that has not repeated its subscriptions for `silent_ms` loses them."""
        self._groups = groups
        self._store = store
        self._offsets = offsets
        self._consumers = consumers
        self._server = server
        self._silent_ms = silent_ms

    def change(self, wanted: LiteSubscription, connection: int) -> None:
        """Apply one change, which came on this connection. Raises `Refused`."""
        group, client_id, parent = wanted.group or "", wanted.client_id or "", wanted.topic or ""
        if not (group.strip() and client_id.strip() and parent.strip()):
            # As Apache's broker, which skips such an entry.
            log.debug("skipped a subscription without client, group or topic: %s", wanted)
            return
        if wanted.action == COMPLETE_REMOVE:
            self._consumers.leave(group, client_id)
            return
        named = sorted(set(wanted.lite_topic_set or ()))
        if wanted.action == PARTIAL_REMOVE:
            self._remove(group, client_id, parent, named)
            return
        if wanted.action not in (PARTIAL_ADD, COMPLETE_ADD):
            raise Refused(ResponseCode.ILLEGAL_OPERATION, f"unknown action {wanted.action} of a subscription")
        rules = self._rules(group, parent)
        is_complete = wanted.action == COMPLETE_ADD
        self._check_quota(rules, group, client_id, named, is_complete=is_complete)
        if not is_complete and wanted.offset_option is not None:
            for name in named:
                self._begin(group, parent, name, wanted.offset_option)
        try:
            lost = self._consumers.subscribe(
                group,
                client_id,
                parent,
                named,
                connection=connection,
                events_max=rules.events_max,
                is_exclusive=rules.is_exclusive,
                is_complete=is_complete,
            )
        except BrokerError as error:
            raise Refused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, str(error)) from error
        for one in lost:
            if rules.resets_taken and one.client_id != client_id:
                self._reset(group, parent, one.lite_topic, 0)
            notice = NotifyUnsubscribeLite(
                lite_topic=one.lite_topic, consumer_group=group, client_id=one.client_id
            )
            # A client whose connection is gone learns of it with its next complete set.
            self._server.push(one.connection, notice.code, encode(notice).ext or {})

    def expire(self) -> None:
        """Drop silent clients, and give messages that a client does not ask for to others."""
        gone = self._consumers.expire(self._silent_ms())
        if gone:
            clients = [f"{client_id} of {group}" for group, client_id in gone]
            log.info(
                "dropped lite subscriptions of silent clients: %s%s", *listed(clients, _CLIENTS_NAMED_MAX)
            )

    def _rules(self, group: str, parent: str) -> LiteRules:
        known = self._groups.get(group)
        if known is None or not known.consume_enable:
            remark = f"Consumer group is not allowed to consume. {group}"
            raise Refused(ResponseCode.ILLEGAL_OPERATION, remark)
        rules = lite_rules(known.attributes)
        if rules is None or rules.parent != parent:
            bound = "has no lite.bind.topic" if rules is None else f"has lite.bind.topic={rules.parent}"
            remark = f"subscription bind topic not match, {group}: it {bound}"
            raise Refused(ResponseCode.INVALID_PARAMETER, remark)
        return rules

    def _check_quota(
        self, rules: LiteRules, group: str, client_id: str, named: Sequence[str], *, is_complete: bool
    ) -> None:
        known = None if is_complete else self._consumers.consumer(group, client_id, 0)
        count = len(named) + (0 if known is None else known.subscriptions)
        if rules.quota is not None and count > rules.quota + QUOTA_SLACK:
            remark = (
                f"client {client_id} of {group} would have {count} lite topics; the quota is {rules.quota}"
            )
            raise Refused(ResponseCode.LITE_SUBSCRIPTION_QUOTA_EXCEEDED, remark)

    def _remove(self, group: str, client_id: str, parent: str, named: list[str]) -> None:
        self._consumers.unsubscribe(group, client_id, parent, named)
        known = self._groups.get(group)
        rules = None if known is None else lite_rules(known.attributes)
        if rules is not None and rules.resets_removed and rules.parent == parent:
            for name in named:
                self._reset(group, parent, name, 0)

    def _begin(self, group: str, parent: str, name: str, option: LiteOffset) -> None:
        """Have the group begin a lite topic where a client wants it to."""
        queue = names.lite_queue(parent, name)
        if queue is None or option.value is None:
            return
        value = option.value
        match option.type:
            case "POLICY":
                target = {_FIRST: 0, _END: self._store.max_offset(queue, 0)}.get(value)
            case "OFFSET":
                target = value
            case "TAIL_N":
                committed = self._offsets.query(group, queue, 0)
                target = None if committed is None else max(0, committed - value)
            case "TIMESTAMP":
                target = self._store.offset_by_time(queue, 0, value)
            case _:
                target = None
        if target is not None:
            self._reset(group, parent, name, target)

    def _reset(self, group: str, parent: str, name: str, offset: int) -> None:
        queue = names.lite_queue(parent, name)
        if queue is not None:
            try:
                self._offsets.reset(group, queue, 0, offset)
            except BrokerError as error:
                raise Refused(ResponseCode.SYSTEM_ERROR, str(error)) from error
