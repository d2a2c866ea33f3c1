"""Notifications to brokers that the smallest id of their group, and so the acting broker, has changed.

Brokers would find out within a second by asking; `notifyMinBrokerIdChanged` speeds it up. Notifications are one-way,
and a lost one does no harm.

Owns the connections to brokers, made at the first notification. Threads: the event loop's.
"""

import logging

from rmqpy._native import Client, ClientTls
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import RocketMQError
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.registration import NotifyMinBrokerIdChange
from rmqpy.remoting.configuration import Configuration
from rmqpy.routing.brokers import MinBrokerIdChange

log = logging.getLogger(__name__)


class BrokerNotifications:
    """Sends them."""

    def __init__(self, configuration: Configuration[NameServerConfig], tls: ClientTls | None = None) -> None:
        self._configuration = configuration
        self._tls = tls
        self._client: Client | None = None

    def min_broker_id_changed(self, change: MinBrokerIdChange) -> None:
        """Notify the group, if enabled. A new broker knows its own id; the others do not know that one left."""
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
        client = self._client = self._client or Client(tls=self._tls)
        for known, address in change.addresses.items():
            if known != smallest or is_news_to_all:
                try:
                    client.call_oneway(address, ask.code, sent.ext, sent.body)
                except RocketMQError as error:
                    log.warning("cannot notify broker %s at %s of a change: %s", change.group, address, error)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None
