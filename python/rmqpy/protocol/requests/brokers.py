"""Requests about a broker as a whole: its runtime information, settings, expired files, and statistics."""

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request


@record
class StringTable:
    table: dict[str, str]


@request(RequestCode.GET_BROKER_RUNTIME_INFO, needs=cluster(Action.GET))
class GetBrokerRuntimeInfo(Request[StringTable]):
    """Counters, rates and disk use of a broker."""


@reply
class BrokerConfigReply:
    """Properties text, and the version of the configuration as JSON."""

    version: str
    body: str


@request(RequestCode.GET_BROKER_CONFIG, needs=cluster(Action.GET))
class GetBrokerConfig(Request[BrokerConfigReply]):
    """All settings."""


@request(RequestCode.UPDATE_BROKER_CONFIG, needs=cluster(Action.UPDATE))
class UpdateBrokerConfig(Request[None]):
    """Change settings: properties text."""

    body: str


@request(RequestCode.DELETE_EXPIRED_COMMITLOG, needs=cluster(Action.UPDATE))
class DeleteExpiredCommitLog(Request[None]):
    """Delete expired files of the log now, whatever the hour."""


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, needs=cluster(Action.UPDATE))
class CleanExpiredConsumeQueue(Request[None]):
    """Delete files of queues whose messages are all gone."""


@record
class StatsWindow:
    """One statistic over one window: total, per second, and per event."""

    sum: int
    tps: float
    avgpt: float


@record
class BrokerStats:
    stats_minute: StatsWindow
    stats_hour: StatsWindow
    stats_day: StatsWindow


@request(RequestCode.VIEW_BROKER_STATS_DATA, needs=cluster(Action.GET))
class ViewBrokerStatsData(Request[BrokerStats]):
    """A statistic such as TOPIC_PUT_NUMS of `orders`, or GROUP_GET_SIZE of `orders@billing`; 1 when there is none."""

    stats_name: str
    stats_key: str
