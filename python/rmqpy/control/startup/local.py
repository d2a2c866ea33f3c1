"""This broker in one start: its configuration, its role, and its place among the brokers of its name."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from rmqpy._native import HandClock, Metadata
from rmqpy.clock import Clock
from rmqpy.config.broker import BrokerConfig
from rmqpy.control.addresses import Addresses
from rmqpy.control.duplicates import refuse_duplicate
from rmqpy.control.election.election import Election
from rmqpy.control.identity import Identity
from rmqpy.control.plugins.running import Plugins
from rmqpy.control.replicas.known_master import KnownMaster
from rmqpy.control.replicas.leadership import Leadership
from rmqpy.control.replicas.role import BrokerRole
from rmqpy.control.replicas.succession import notify_replaced, settle
from rmqpy.control.settings import LiveConfig
from rmqpy.control.startup.restart import Restart
from rmqpy.control.statistics.history import History
from rmqpy.remoting.certificates import Certificates
from rmqpy.remoting.client import Peer


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocalBroker:
    """This broker, created again at each restart."""

    #: The configuration at the start, with the decided role; `settings` has later changes.
    config: BrokerConfig
    settings: LiveConfig
    #: The broker id as given; after a promotion, `config` has a master's.
    given_broker_id: int
    addresses: Addresses
    clock: Clock
    certificates: Certificates
    leadership: Leadership
    #: For a slave: its master's address.
    master: KnownMaster
    #: The snapshots that the native module reads.
    metadata: Metadata
    role: BrokerRole
    restart: Restart
    #: The address of the master that this broker has just replaced.
    replaced: str | None
    #: Kept across restarts within the process.
    history: History
    #: Set if a controller assigns the role.
    election: Election | None
    plugins: Plugins

    @property
    def is_slave(self) -> bool:
        """True if the broker starts as a slave."""
        return self.config.replication.is_slave

    @property
    def folder(self) -> Path:
        """The folder of the tables."""
        return Path(self.config.store.folder) / "config"

    @property
    def hand_clock(self) -> HandClock | None:
        """The native module's clock, if it is not the machine's."""
        return self.clock if isinstance(self.clock, HandClock) else None

    def identity(self) -> Identity:
        """Return this broker's current identity."""
        return self.addresses.identity(self.settings.now)

    async def take_place(self, name_servers: Collection[Peer], peer: Callable[[str], Peer]) -> set[str]:
        """Return the addresses of masters whose leadership this broker has ended.

        Raises `ConfigError` if another broker has its name and id, or this broker is a replaced master.
        """
        if self.election is not None:
            # The controller hands out ids and ends leaderships.
            return set()
        leadership, identity, given_id = self.leadership, self.identity(), self.given_broker_id
        ended: set[str] = set()
        if (
            await notify_replaced(leadership, identity.broker, given_id, identity.address, peer)
            and self.replaced
        ):
            ended.add(self.replaced)
        if not self.is_slave:
            ended |= await settle(leadership, identity, given_id, name_servers, peer)
        await refuse_duplicate(identity, name_servers, peer, ended)
        return ended

    def set_rules(self) -> None:
        """Publish the rules for sends to the data plane."""
        now = self.settings.now
        self.metadata.set_transactions(now.rejects_transactions, now.transaction_timeout_ms)
        self.metadata.set_message_type_check(now.checks_message_types)
