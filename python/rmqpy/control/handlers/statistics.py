"""What was counted: per topic, queue, group and broker. Runs on the event loop."""

from __future__ import annotations

from rmqpy.control.statistics.traffic import Statistics
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.statistics import BrokerStats, ViewBrokerStatsData
from rmqpy.remoting.server import Refused, handles


class StatisticsHandlers:
    """Figures of the last minute, hour and day."""

    def __init__(self, statistics: Statistics) -> None:
        self._statistics = statistics

    @handles(ViewBrokerStatsData)
    def view(self, ask: ViewBrokerStatsData) -> BrokerStats:
        found = self._statistics.view(ask.stats_name, ask.stats_key)
        if found is None:
            raise Refused(
                ResponseCode.SYSTEM_ERROR, f"The stats <{ask.stats_name}> <{ask.stats_key}> not exist"
            )
        return found
