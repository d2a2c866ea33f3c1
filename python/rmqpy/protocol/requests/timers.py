"""Timed messages that wait."""

from dataclasses import field
from typing import Final

from rmqpy.protocol.access import Action, cluster
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, Resource, record, request, wire
from rmqpy.protocol.topics import DataVersion

#: Seconds from now within which messages are counted apart, as the original does.
DUE_WITHIN_S: Final = (5, 60, 300, 900, 3_600, 14_400, 28_800, 86_400)


@record
class TopicCount:
    """Messages of a topic, and when they were counted."""

    count: int
    time_stamp: int


@record
class TimerMetricsTable:
    """Messages that wait, by topic: the body of an answer and the content of `timermetrics`."""

    data_version: DataVersion = DataVersion()
    timing_count: dict[Resource, TopicCount]
    #: Ours, where it was asked for: by topic how many are due within each of `DUE_WITHIN_S`, and later; each counts
    #: once.
    timing_distribution: dict[Resource, list[int]] = field(default_factory=dict)


@request(RequestCode.GET_TIMER_METRICS, needs=cluster(Action.GET))
class GetTimerMetrics(Request[TimerMetricsTable]):
    """Timed messages that wait, by topic."""

    #: Ours: when they are due, too, for which the timer log is read.
    is_distributed: bool = wire("rmqpyDistribution", default=False)
