"""Telling the brokers of a group that the smallest id among them is another: who acts for the master now.

They would find out by themselves within a second, by asking; where `notifyMinBrokerIdChanged` is on they need not.
Nobody answers, and nobody minds one that is lost.

Owns the connections to brokers, which are made when the first of them is told something. Threads: the event loop's.
"""

import logging

from rmqpy._native import Client
from rmqpy.errors import RocketMQError
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import NotifyMinBrokerIdChange
from rmqpy.routing.configuration import Configuration
from rmqpy.routing.routes import SmallestChanged

log = logging.getLogger(__name__)


class Notices:
    """What a name server says to brokers."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        self._client: Client | None = None

    def smallest_changed(self, change: SmallestChanged) -> None:
        """Tell the group, if that is wanted. A newcomer knows its own id; who is left behind by one does not."""
        if not self._configuration.current.tells_smallest:
            return
        smallest = min(change.addresses)
        is_news_to_all = change.gone is not None or len(change.addresses) == 1
        ask = NotifyMinBrokerIdChange(
            min_broker_id=smallest,
            broker_name=change.group,
            min_broker_addr=change.addresses[smallest],
            offline_broker_addr=change.gone,
            ha_broker_addr=change.replica_address,
        )
        sent = encode(ask)
        client = self._client = self._client or Client()
        for known, address in change.addresses.items():
            if known != smallest or is_news_to_all:
                try:
                    client.call_oneway(address, ask.code, sent.ext, sent.body)
                except RocketMQError as error:
                    log.warning("broker %s at %s was not told of a change: %s", change.group, address, error)

    def close(self) -> None:
        """End the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None
