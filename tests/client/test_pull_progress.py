"""Progress of pull consumers: committed messages were delivered, and delivered ones without a commit are reported."""

from typing import Any

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.message import MessageQueue
from rmqpy.protocol.codes import RequestCode, ResponseCode
from rmqpy.server import Standalone
from waiting import until
from wire import Frame

from .fakes import SILENCE, Answer, Broker, Network, record
from .live import BODIES, send

Q0 = MessageQueue("orders", "broker-a", 0)


@pytest.fixture
def broker(network: Network) -> Broker:
    broker = network.broker("broker-a")
    broker.log[0] = [record(str(offset).encode(), queue_id=0, offset=offset) for offset in range(100)]
    return broker


@pytest.fixture
def namesrv(network: Network, broker: Broker) -> str:
    return network.name_server([broker], {"orders": 1}).address


def consumer(namesrv: str, **asked: Any) -> rmqpy.PullConsumer:
    reader = rmqpy.PullConsumer("g", namesrv, **{"start_from": "earliest", **asked})
    reader.assign([Q0])
    return reader


def test_leaving_an_iteration_commits_yielded_messages(namesrv: str, broker: Broker) -> None:
    with consumer(namesrv) as reader:
        for message in reader:
            if message.queue_offset == 21:
                break
        assert reader.position(Q0) == 22
    assert broker.committed == {0: 22}


async def test_leaving_an_async_iteration_commits_yielded_messages(namesrv: str, broker: Broker) -> None:
    async with rmqpy.AsyncPullConsumer("g", namesrv, start_from="earliest") as reader:
        await reader.assign([Q0])
        async for message in reader:
            if message.queue_offset == 21:
                break
    assert broker.committed == {0: 22}


def test_next_poll_returns_the_rest_of_an_iteration(namesrv: str) -> None:
    with consumer(namesrv) as reader:
        before = [next(iter(reader)).queue_offset]
        before += [message.queue_offset for message, _ in zip(reader, range(5), strict=False)]
        after = [message.queue_offset for message in reader.poll(20, max_messages=3)]
    # The zip takes one message more than it pairs.
    assert before + after == [0, 1, 2, 3, 4, 5, 7, 8, 9]


def test_commit_within_an_iteration_covers_yielded_messages(namesrv: str, broker: Broker) -> None:
    with consumer(namesrv, auto_commit=False) as reader:
        for message in reader:
            reader.commit()
            assert broker.committed == {0: message.queue_offset + 1}
            if message.queue_offset == 7:
                break


@pytest.mark.parametrize("is_iterating", [True, False], ids=["iterating", "polling"])
def test_nothing_is_committed_on_leaving_with_an_exception(
    namesrv: str, broker: Broker, is_iterating: bool
) -> None:
    def work() -> None:
        with consumer(namesrv) as reader:
            for message in reader if is_iterating else reader.poll(20):
                raise KeyError(message.queue_offset)

    with pytest.raises(KeyError):
        work()
    assert broker.committed == {}


async def test_nothing_is_committed_on_leaving_a_loop_with_an_exception(namesrv: str, broker: Broker) -> None:
    async def work() -> None:
        async with rmqpy.AsyncPullConsumer("g", namesrv, start_from="earliest") as reader:
            await reader.assign([Q0])
            async for message in reader:
                raise KeyError(message.queue_offset)

    with pytest.raises(KeyError):
        await work()
    assert broker.committed == {}


@pytest.mark.parametrize(
    "refusal", [Frame(ResponseCode.SYSTEM_ERROR, remark="no"), SILENCE], ids=["refused", "unanswered"]
)
def test_offsets_after_a_commit_in_progress_are_committed_at_the_end(
    network: Network, broker: Broker, refusal: Answer
) -> None:
    asked = 0
    commit = broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET]

    def refuse_first(ask: Frame) -> Answer:
        nonlocal asked
        asked += 1
        return refusal if asked == 1 else commit(ask)

    broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse_first
    namesrv = network.name_server([broker], {"orders": 1}).address
    config = rmqpy.ClientConfig(namesrv=namesrv, request_timeout=2)
    with rmqpy.PullConsumer("g", config, start_from="earliest", auto_commit=0.01) as reader:
        reader.assign([Q0])
        received = len(reader.poll(20, max_messages=40))
        while not asked:
            reader.poll(0.01, max_messages=1)
            received = reader.position(Q0)
        reader.commit()
        assert broker.committed == {0: received}


def test_close_raises_a_failed_commit_after_closing(namesrv: str, broker: Broker) -> None:
    broker.handlers[RequestCode.UPDATE_CONSUMER_OFFSET] = lambda _: Frame(
        ResponseCode.SYSTEM_ERROR, remark="no"
    )
    reader = consumer(namesrv)
    reader.poll(20)
    with pytest.raises(errors.BrokerError):
        reader.close()
    assert reader.is_closed


def test_late_member_does_not_commit_lost_queues(server: Standalone, topic: str) -> None:
    with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=0.01) as late:
        late.subscribe(topic)
        send(server, topic, BODIES[:40])
        received = 0
        while received < 41:
            received += len(late.poll(1, max_messages=5))
        late.commit()
        ours = late.assignment()
        with rmqpy.PullConsumer(topic, server.namesrv, start_from="earliest", auto_commit=False) as other:
            other.subscribe(topic)
            until(lambda: (other.poll(0.05), len(other.assignment()) == 2)[1])
            [lost, *_] = sorted(ours & other.assignment())
            # The other one goes back, as its user may; what the late one knows is old.
            other.seek(lost, 0)
            other.commit({lost: 0})
            late.seek(lost, 3)
            until(lambda: (share := late._follower.subscriber.newest) and len(share.view.queues) == 2)  # type: ignore[union-attr]
            late.poll(0)
            late.poll(0)
            assert other.committed(lost) == 0
