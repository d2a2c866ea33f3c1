"""Assignment: the role that the controller gave to this broker. Values."""

from __future__ import annotations

from dataclasses import dataclass


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
