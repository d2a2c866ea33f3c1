"""Elected leadership: the role of this broker as the controller assigned it, instead of the configured one.

Invariant: a broker without an assignment follows and is fenced. Threads: the event loop's.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from rmqpy.config.broker import BrokerConfig
from rmqpy.config.replication import SLAVE, SYNC_MASTER
from rmqpy.control.election.assignment import Assignment
from rmqpy.control.election.confirmed_file import ConfirmedFile
from rmqpy.control.election.identity_file import IdentityFile
from rmqpy.control.replicas.leadership import Leadership, MasterPromise
from rmqpy.protocol.requests.routes import MASTER_ID

#: The id of a broker that has none yet, as Apache's broker reports it.
NO_ID = -1


class ElectedLeadership(Leadership):
    """The assigned role, with which the next start of the broker's parts begins."""

    def __init__(self, config: BrokerConfig, identity: IdentityFile) -> None:
        super().__init__(config)
        self._identity = identity
        self.confirmed_file = ConfirmedFile(Path(config.store.folder))
        self.assignment: Assignment | None = None

    @property
    def leads(self) -> bool:
        """Whether this broker is the assigned master."""
        return self.assignment is not None and self.assignment.master_id == self._identity.broker_id

    @property
    def own_id(self) -> int:
        """The id from the controller; `NO_ID` without one."""
        known = self._identity.broker_id
        return NO_ID if known is None else known

    @property
    def slaves_in_sync(self) -> list[int] | None:
        """For the master, the other replicas in sync."""
        if self.assignment is None or not self.leads:
            return None
        return sorted(self.assignment.in_sync.ids - {self.own_id})

    @property
    def state_version(self) -> int:
        """The epoch, so that the registration of a deposed master does not replace that of its successor."""
        return 0 if self.assignment is None else self.assignment.epoch

    async def load(self) -> None:
        """Read the identity, and forget an assignment from before a stop. Raises `ConfigError`."""
        self.assignment = None
        await self._identity.load()
        await self.confirmed_file.load()

    @property
    def confirmed(self) -> int:
        """The position below which this broker never cuts its log."""
        return self.confirmed_file.position

    def config(self) -> BrokerConfig:
        """Return the configuration with the assigned role."""
        role, broker_id = (SYNC_MASTER, MASTER_ID) if self.leads else (SLAVE, self.own_id)
        replication = dataclasses.replace(self._given.replication, role=role, broker_id=broker_id)
        return dataclasses.replace(self._given, replication=replication)

    @property
    def epoch(self) -> int | None:
        """The epoch in which this broker leads."""
        return self.assignment.epoch if self.assignment is not None and self.leads else None

    async def follow(self) -> None:
        """The controller knows the roles, so nothing is stored."""

    async def lead(self) -> None:
        """The controller knows the roles, so nothing is stored."""

    async def note_master(self, address: str, promise: MasterPromise) -> None:
        """Each broker has its own settings, and the set of replicas in sync is the controller's."""
