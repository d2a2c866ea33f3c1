"""Membership: this broker in its set at the controllers, by its id and registration.

Owns whether the broker is registered. Threads: the event loop's.
"""

from __future__ import annotations

import logging
import time
from typing import Final

from rmqpy.config.broker import BrokerConfig
from rmqpy.control.election.controllers import Controllers, NoLeader
from rmqpy.control.election.identity_file import AppliedId, IdentityFile
from rmqpy.control.election.leadership import ElectedLeadership
from rmqpy.errors import RocketMQError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import (
    ApplyBrokerId,
    ElectMaster,
    GetNextBrokerId,
    GetReplicaInfo,
    GetSyncStateData,
    RegisterReplica,
    ReplicaInfo,
)

log = logging.getLogger(__name__)

#: An election waits for the lease of the old master.
ELECTION_SECONDS: Final = 6.0


class Membership:
    """The requests by which one broker joins its set, and learns of its master."""

    def __init__(
        self,
        config: BrokerConfig,
        identity: IdentityFile,
        leadership: ElectedLeadership,
        controllers: Controllers,
        address: str,
    ) -> None:
        """`address` is the broker's."""
        self._cluster, self._name = config.cluster, config.name
        self._identity = identity
        self._leadership = leadership
        self._controllers = controllers
        self._address = address
        self._is_registered = False

    async def replica_info(self) -> ReplicaInfo:
        """Return the master of the set and its replicas in sync. Gets an id and registers before, if needed."""
        if self._identity.broker_id is None:
            await self._take_id()
        if not self._is_registered:
            registered = RegisterReplica(
                cluster_name=self._cluster,
                broker_name=self._name,
                broker_id=self._leadership.own_id,
                broker_address=self._address,
                invoke_time=_millis(),
            )
            await self._controllers.ask(registered)
            self._is_registered = True
        try:
            return await self._controllers.ask(GetReplicaInfo(broker_name=self._name))
        except RocketMQError as error:
            if error.code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST:
                self._is_registered = False
            raise

    async def _take_id(self) -> None:
        """Get an id from the controller, the same one after a crash in between."""
        identity = self._identity
        while identity.broker_id is None:
            applied = await identity.applied()
            if applied is None:
                ask = GetNextBrokerId(cluster_name=self._cluster, broker_name=self._name)
                following = (await self._controllers.ask(ask)).next_broker_id
                applied = AppliedId(following, f"{self._address};{_millis()}")
                await identity.note_applied(applied)
            try:
                await self._controllers.ask(
                    ApplyBrokerId(
                        cluster_name=self._cluster,
                        broker_name=self._name,
                        applied_broker_id=applied.broker_id,
                        register_check_code=applied.check_code,
                    )
                )
            except RocketMQError as error:
                if error.code != ResponseCode.CONTROLLER_BROKER_ID_INVALID:
                    raise
                await identity.forget_applied()
                continue
            await identity.confirm(applied.broker_id)
            log.info("broker %s has id %d in its set", self._name, applied.broker_id)

    async def replicas(self) -> int | None:
        """Return the number of registered replicas, on which the smallest set of a master depends; `None` if the
        controller does not know the set."""
        states = await self._controllers.ask(GetSyncStateData(body=[self._name]))
        info = None if states.body is None else states.body.replicas_info_table.get(self._name)
        return None if info is None else len(info.in_sync_replicas) + len(info.not_in_sync_replicas)

    async def elect(self) -> None:
        """Ask for an election; its result is in the next `replica_info`. Raises `NoLeader` if it had none."""
        try:
            await self._controllers.ask(
                ElectMaster(
                    cluster_name=self._cluster,
                    broker_name=self._name,
                    broker_id=self._leadership.own_id,
                    invoke_time=_millis(),
                ),
                seconds=ELECTION_SECONDS,
            )
        except RocketMQError as error:
            if error.code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED:
                raise NoLeader(
                    "it has no master, and the controllers elect none: no replica in sync is alive; start the last "
                    "master, or one of the replicas that getSyncStateSet names as in sync"
                ) from None
            if error.code != ResponseCode.CONTROLLER_MASTER_STILL_EXIST:
                raise


def _millis() -> int:
    return round(time.time() * 1_000)
