"""Notifications to brokers that an election has changed their role.

Brokers would find out within seconds by asking. Notifications are one-way, and a lost one does no harm.

Owns the connections to brokers, made at the first notification. Threads: the event loop's.
"""

import logging

from rmqpy._native import BrokerSet, Client, ClientTls
from rmqpy.config.controller import ControllerConfig
from rmqpy.errors import RocketMQError
from rmqpy.protocol.declare import encode
from rmqpy.protocol.requests.controller import SyncStateSet
from rmqpy.protocol.requests.leadership import NotifyBrokerRoleChanged
from rmqpy.remoting.configuration import Configuration

log = logging.getLogger(__name__)


class RoleNotifications:
    """Sends them."""

    def __init__(self, configuration: Configuration[ControllerConfig], tls: ClientTls | None = None) -> None:
        self._configuration = configuration
        self._tls = tls
        self._client: Client | None = None

    def role_changed(self, address: str, broker_set: BrokerSet) -> None:
        """Notify the broker at `address`. Without a master there is nothing to send."""
        if not self._configuration.current.notifies_roles or broker_set.master_id is None:
            return
        ask = NotifyBrokerRoleChanged(
            master_broker_id=broker_set.master_id,
            master_epoch=broker_set.master_epoch,
            master_address=broker_set.master_address,
            sync_state_set_epoch=broker_set.in_sync_epoch,
            body=SyncStateSet(
                sync_state_set=broker_set.in_sync, sync_state_set_epoch=broker_set.in_sync_epoch
            ),
        )
        sent = encode(ask)
        client = self._client = self._client or Client(tls=self._tls)
        try:
            client.call_oneway(address, ask.code, sent.ext, sent.body)
        except RocketMQError as error:
            log.warning("cannot notify broker %s at %s of its role: %s", broker_set.name, address, error)

    def close(self) -> None:
        """Close the connections. Idempotent."""
        if self._client is not None:
            self._client.close()
            self._client = None
