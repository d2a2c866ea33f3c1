"""Orders: the messages that a group popping in order holds of a queue, as files and slaves have them."""

from __future__ import annotations

from rmqpy.protocol.declare import record, wire


@record
class OrderInfo:
    """The last batch of one queue. Times are milliseconds."""

    pop_time: int = 0
    #: How long the messages are hidden.
    invisible_time: int | None = wire("i", default=None)
    #: The offset of the first message, and the distance of each other one from it.
    offsets: list[int] = wire("o", default_factory=list)
    #: Offset to the time at which the message is visible again, where it was changed.
    next_visible_times: dict[int, int] = wire("ot", default_factory=dict)
    #: Offset to the number of earlier deliveries, where there were any.
    consumed_counts: dict[int, int] = wire("oc", default_factory=dict)
    last_consume_time: int = wire("l", default=0)
    #: Bit by bit, whether each message is acknowledged: 64 bits with a sign.
    commit_bits: int = wire("cm", default=0)
    #: The client's name for the pop.
    attempt_id: str | None = wire("a", default=None)


#: `topic@group` to queue id to batch.
OrderTable = dict[str, dict[int, OrderInfo]]
