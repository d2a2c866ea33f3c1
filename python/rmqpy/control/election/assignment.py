"""Assignment: the role that the controller gave to this broker. Values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from rmqpy.protocol.requests.controller import ReplicaInfo


@dataclass(frozen=True, slots=True)
class InSync:
    """The replicas in sync, this master included, and the epoch of this set."""

    ids: frozenset[int]
    epoch: int


@dataclass(frozen=True, slots=True)
class Assignment:
    """The master of an epoch."""

    epoch: int
    master_id: int
    master_address: str
    in_sync: InSync

    @classmethod
    def read(cls, info: ReplicaInfo) -> Self | None:
        """Return a controller's answer; `None` if the set has no master."""
        master_id, address, known = info.master_broker_id, info.master_address, info.body
        if master_id is None or address is None:
            return None
        in_sync = (
            InSync(frozenset((master_id,)), 0)
            if known is None
            else InSync(frozenset(known.sync_state_set), known.sync_state_set_epoch)
        )
        return cls(info.master_epoch, master_id, address, in_sync)
