"""Puller: equal replies and failures have equal effects for every reader, in threads and event loops."""

import time
from collections.abc import Iterator

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.client.cluster import ClusterConnection
from rmqpy.client.pull.puller import Puller, PullPlan, QueuePull
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.remoting import pulls
from rmqpy.remoting.backoff import BUSY, Backoff
from rmqpy.remoting.client import BlockingCaller, run
from wire import Frame

from .fakes import Broker, Network

PULL = RequestCode.PULL_MESSAGE
WAYS = ["one queue", "many queues"]


@pytest.fixture
def broker(network: Network) -> Broker:
    return network.broker("broker-a")


@pytest.fixture
def cluster(network: Network, broker: Broker) -> Iterator[ClusterConnection]:
    servers = network.name_server([broker], {"orders": 1})
    cluster = ClusterConnection(rmqpy.ClientConfig(namesrv=servers.address))
    yield cluster
    cluster.close()


def pulled(cluster: ClusterConnection, plan: PullPlan, way: str) -> pulls.Pulled:
    """Return the first reply for a queue, whatever the number of failures before it."""
    puller: Puller[QueuePull] = Puller(BlockingCaller(cluster.client), cluster.routes, plan)
    queues = [QueuePull(MessageQueue("orders", "broker-a", 0), 7)]
    while True:
        if way == "one queue":
            replies = [run(puller.pull(queues[0]))]
        else:
            run(puller.look_up(queues))
            puller.start(queues)
            run(puller.wait(queues, 5))
            replies = [reply for _, reply in puller.completed()]
            puller.check()
        if replies and replies[0] is not None:
            return replies[0]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("code", "found"),
    [
        (ResponseCode.SUCCESS, pulls.Found.MESSAGES),
        (ResponseCode.PULL_NOT_FOUND, pulls.Found.NOTHING),
        (ResponseCode.PULL_RETRY_IMMEDIATELY, pulls.Found.FILTERED),
        (ResponseCode.PULL_OFFSET_MOVED, pulls.Found.MOVED),
    ],
)
def test_four_response_codes_are_results(
    cluster: ClusterConnection, broker: Broker, way: str, code: int, found: pulls.Found
) -> None:
    broker.handlers[PULL] = lambda ask: broker.pulled(code, 9, 0)
    reply = pulled(cluster, PullPlan("g"), way)
    assert (reply.found, reply.next_offset) == (found, 9)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("failures_max", "is_told"), [(None, False), (3, True)])
def test_flow_control_is_logged_if_it_may_give_a_queue_up(
    cluster: ClusterConnection,
    broker: Broker,
    way: str,
    failures_max: int | None,
    is_told: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    answers = [Frame(ResponseCode.SYSTEM_BUSY), broker.pulled(19, 7, 0)]
    broker.handlers[PULL] = lambda ask: answers.pop(0)
    pulled(cluster, PullPlan("g", failures_max=failures_max), way)
    assert ("failed, retrying" in caplog.text) is is_told


@pytest.mark.parametrize("way", WAYS)
def test_busy_and_failing_brokers_have_separate_pauses(
    cluster: ClusterConnection, broker: Broker, way: str
) -> None:
    for code, pause_s in ((ResponseCode.SYSTEM_BUSY, BUSY.first_s), (ResponseCode.SYSTEM_ERROR, 0.2)):
        asked_at: list[float] = []

        def answer(ask: Frame, code: int = code, asked_at: list[float] = asked_at) -> Frame:
            asked_at.append(time.monotonic())
            return Frame(code) if len(asked_at) == 1 else broker.pulled(19, 7, 0)

        broker.handlers[PULL] = answer
        pulled(cluster, PullPlan("g", failing=Backoff(0.2, 0.2)), way)
        assert len(asked_at) == 2
        assert asked_at[1] - asked_at[0] >= pause_s


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("failures_max", [None, 3])
def test_permanent_failure_is_raised_immediately(
    cluster: ClusterConnection, broker: Broker, way: str, failures_max: int | None
) -> None:
    broker.handlers[PULL] = lambda ask: Frame(ResponseCode.NO_PERMISSION)
    with pytest.raises(errors.AuthError):
        pulled(cluster, PullPlan("g", failures_max=failures_max), way)
    assert broker.count(PULL) == 1


@pytest.mark.parametrize("way", WAYS)
def test_transient_failures_are_raised_after_too_many(
    cluster: ClusterConnection, broker: Broker, way: str
) -> None:
    broker.handlers[PULL] = lambda ask: Frame(ResponseCode.SYSTEM_ERROR)
    with pytest.raises(errors.BrokerError):
        pulled(cluster, PullPlan("g", failing=Backoff(0.001, 0.001), failures_max=3), way)
    assert broker.count(PULL) == 3
