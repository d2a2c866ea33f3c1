"""Statistics of a broker: sums and rates of the last minute, hour and day."""

from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.declare import Request, record, request


@record
class StatsWindow:
    """One figure over one window: what was added up, per second, and per event."""

    sum: int
    tps: float
    avgpt: float


@record
class BrokerStats:
    """One figure over three windows."""

    stats_minute: StatsWindow
    stats_hour: StatsWindow
    stats_day: StatsWindow


@request(RequestCode.VIEW_BROKER_STATS_DATA)
class ViewBrokerStatsData(Request[BrokerStats]):
    """A figure such as TOPIC_PUT_NUMS of `orders`, or GROUP_GET_SIZE of `orders@billing`; 1 when there is none."""

    stats_name: str
    stats_key: str
