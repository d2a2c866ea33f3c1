"""A master is lost, and another replica leads a moment later: sends wait for it within their timeout."""

import threading

import pytest

import rmqpy
from rmqpy import errors
from rmqpy.protocol.codes import RequestCode
from waiting import until

from .fakes import Broker, NameServer, Network
from .sending import TIMEOUT_S, send

#: Look-ups of a route while there is no successor.
LOOK_UPS = 3


@pytest.fixture
def replicas(network: Network) -> tuple[Broker, Broker]:
    """A master of a set with another replica, and that replica as it answers once it leads."""
    master, successor = network.broker("broker-a"), network.broker("broker-a")
    master.replicas = {"2": successor.address}
    return master, successor


@pytest.fixture
def name_server(network: Network, replicas: tuple[Broker, Broker]) -> NameServer:
    return network.name_server([replicas[0]], {"orders": 4})


@pytest.mark.parametrize(
    ("how", "is_in_route"),
    [
        # Without a master the route has no queues to write to, so none can be chosen.
        *((how, is_in_route) for how in ("send", "submit", "async") for is_in_route in (True, False)),
        ("pinned", True),
    ],
)
def test_a_send_waits_for_the_successor_of_a_lost_master(
    name_server: NameServer, replicas: tuple[Broker, Broker], how: str, is_in_route: bool
) -> None:
    master, successor = replicas
    master.stop()
    if not is_in_route:
        master.registered_id = "3"
    results: list[rmqpy.SendResult | BaseException] = []

    def work() -> None:
        try:
            results.append(send(how, name_server.address))
        except BaseException as error:
            results.append(error)

    sending = threading.Thread(target=work)
    sending.start()
    until(lambda: name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) >= LOOK_UPS or results)
    assert not results
    name_server.brokers = [successor]
    sending.join(TIMEOUT_S)
    (result,) = results
    assert isinstance(result, rmqpy.SendResult), result
    assert len(successor.sends) == 1


def test_a_send_to_a_broker_without_replicas_fails_after_its_retries(network: Network) -> None:
    alone = network.broker("broker-a")
    name_server = network.name_server([alone], {"orders": 4})
    alone.stop()
    with (
        rmqpy.Producer(name_server.address, send_timeout=TIMEOUT_S) as producer,
        pytest.raises(errors.SendError) as caught,
    ):
        producer.send("orders", b"x")
    assert len(caught.value.attempts) == 3
