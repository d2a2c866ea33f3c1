"""Controllers that do not answer: a broker's request goes to the controller that leads instead."""

from collections.abc import AsyncIterator, Iterator

import pytest

from client.fakes import SILENCE, Network, Server
from rmqpy._native import Client
from rmqpy.control.election.controllers import Controllers
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.controller import GetReplicaInfo
from rmqpy.remoting.client import LoopCaller
from wire import Frame

#: Longer than the whole test may take.
ANSWER_SECONDS = 300.0


@pytest.fixture
def network() -> Iterator[Network]:
    with Network() as network:
        yield network


@pytest.fixture
async def caller() -> AsyncIterator[LoopCaller]:
    client = Client()
    caller = LoopCaller(client)
    yield caller
    caller.close()
    client.close()


def lead(controller: Server, epoch: int) -> None:
    """Let a controller lead, and know the master of this epoch."""
    controller.handlers = {
        RequestCode.CONTROLLER_GET_METADATA_INFO: lambda ask: Frame(0, ext={"isLeader": "true"}),
        RequestCode.CONTROLLER_GET_REPLICA_INFO: lambda ask: Frame(0, ext={"masterEpoch": str(epoch)}),
    }


async def test_a_request_to_a_lost_leader_goes_to_the_next_one(network: Network, caller: LoopCaller) -> None:
    first, second = network.broker("controller-0"), network.broker("controller-1")
    lead(first, 1)
    controllers = Controllers([first.address, second.address], caller.peer)
    ask = GetReplicaInfo(broker_name="broker-a")
    assert (await controllers.ask(ask)).master_epoch == 1
    first.handlers = dict.fromkeys(first.handlers, lambda ask: SILENCE)
    lead(second, 2)
    assert (await controllers.ask(ask, seconds=ANSWER_SECONDS)).master_epoch == 2
    assert (await controllers.ask(ask)).master_epoch == 2


async def test_a_leader_that_takes_its_time_is_waited_for(network: Network, caller: LoopCaller) -> None:
    leader, other = network.broker("controller-0"), network.broker("controller-1")
    lead(leader, 1)
    controllers = Controllers([leader.address, other.address], caller.peer)
    ask = GetReplicaInfo(broker_name="broker-a")
    await controllers.ask(ask)
    leader.handlers[RequestCode.CONTROLLER_GET_REPLICA_INFO] = lambda ask: SILENCE
    with pytest.raises(TimeoutError):
        await controllers.ask(ask, seconds=1.0)
    assert leader.count(RequestCode.CONTROLLER_GET_REPLICA_INFO) == 2
