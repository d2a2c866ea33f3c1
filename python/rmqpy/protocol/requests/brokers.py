"""Requests about a broker: runtime information, settings, expired files, statistics."""

from typing import Final

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, reply, request, wire


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
    """Delete expired log files now, at any hour."""


@request(RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, needs=cluster(Action.UPDATE))
class CleanExpiredConsumeQueue(Request[None]):
    """Delete queue files without remaining messages."""


@record
class StatsWindow:
    """One statistic over one window: total, per second, and per event."""

    sum: int
    tps: float
    avgpt: float


#: A value of a history that is not known; all others are 0 or more.
UNKNOWN: Final = -1.0
#: The statistic's name that returns a history; its key has the kinds, separated by commas.
HISTORY: Final = "RMQPY_HISTORY"


@record
class HistoryEvent:
    """A mark in a history."""

    ago_millis: int
    #: started, promoted, demoted, reset.
    what: str
    #: A group, or the broker.
    subject: str


@record
class History:
    """Recent values, oldest first, one every `step_millis`; the last is `age_millis` old."""

    step_millis: int
    age_millis: int
    #: Kind → name → values.
    series: dict[str, dict[str, list[float]]]
    events: list[HistoryEvent]


@record
class BrokerStats:
    stats_minute: StatsWindow
    stats_hour: StatsWindow
    stats_day: StatsWindow
    #: rmqpy only, on request.
    history: History | None = None


@request(RequestCode.VIEW_BROKER_STATS_DATA, needs=cluster(Action.GET))
class ViewBrokerStatsData(Request[BrokerStats]):
    """A statistic such as TOPIC_PUT_NUMS of `orders`, or GROUP_GET_SIZE of `orders@billing`; 1 if there is none."""

    stats_name: str
    stats_key: str
    #: Of a history: names separated by line ends.
    names: str | None = wire("rmqpyNames", default=None)
