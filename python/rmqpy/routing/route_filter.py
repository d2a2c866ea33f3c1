"""Route filters: a slave shown as the master it acts for, the brokers of one zone, and addresses by listener.

Pure; the tables are in `routes`.
"""

from dataclasses import replace

from rmqpy.config.listeners import Listeners, Member
from rmqpy.protocol.requests.routes import MASTER_ID, BrokerData, QueueData, TopicRoute
from rmqpy.protocol.topics import Permission


def with_acting_master(group: BrokerData, queue: QueueData) -> BrokerData:
    """The group with its smallest slave as master, if it has no master and may not be written to."""
    is_whole = MASTER_ID in group.broker_addrs
    if is_whole or not group.enable_acting_master or queue.perm & Permission.WRITE:
        return group
    smallest = min(group.broker_addrs)
    shown = {MASTER_ID if known == smallest else known: where for known, where in group.broker_addrs.items()}
    return replace(group, broker_addrs=dict(sorted(shown.items())))


def in_zone(route: TopicRoute, zone: str) -> TopicRoute:
    """The route as seen from one zone. Groups without a master stay: slaves elsewhere may serve reads."""
    brokers = [
        group
        for group in route.broker_datas
        if MASTER_ID not in group.broker_addrs or group.zone_name == zone
    ]
    names = {group.broker_name for group in brokers}
    return replace(
        route,
        broker_datas=brokers,
        queue_datas=[queue for queue in route.queue_datas if queue.broker_name in names],
    )


def seen_by(listener: str, group: BrokerData, listeners: Listeners) -> BrokerData:
    """The group with the addresses that clients of one listener receive."""
    return replace(
        group,
        broker_addrs={
            broker_id: listeners.seen(listener, address, Member(group.cluster, group.broker_name, broker_id))
            for broker_id, address in group.broker_addrs.items()
        },
    )
