"""Pending timed messages."""

from dataclasses import field
from typing import Final

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request, wire
from rmqpy.protocol.topics import DataVersion

#: Limits in seconds for separate counts, as in Apache's broker.
DUE_WITHIN_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


@record
class TopicCount:
    """Number of messages of a topic, and the time of the count."""

    count: int
    time_stamp: int


@record
class TimerMetricsTable:
    """Pending messages by topic: the body of a reply and the content of `timermetrics`."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[Resource, TopicCount]
    #: rmqpy only, on request: by topic, messages due within each of `DUE_WITHIN_S`, and later; each counts once.
    timing_distribution: dict[Resource, list[int]] = field(default_factory=dict)


@request(RequestCode.GET_TIMER_METRICS, needs=cluster(Action.GET))
class GetTimerMetrics(Request[TimerMetricsTable]):
    """Pending timed messages by topic."""

    #: rmqpy only: also by due time, for which the timer log is read.
    is_distributed: bool = wire("rmqpyDistribution", default=False)
