"""Messages that left the disk of our broker: official clients read them from the tiered storage as they read others."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from tiered import connected, send

from .clients import InteropClient, ProcessClient

TOPIC, QUEUES, MESSAGES = "orders", 2, 200
_groups = itertools.count()


@pytest.fixture(scope="module")
def namesrv(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A broker with messages of which only the last ones are on its disk."""
    with connected(tmp_path_factory.mktemp("tiered")) as (broker, admin, producer):
        admin.create_topic(TOPIC, read_queues=QUEUES, write_queues=QUEUES)
        for number in range(MESSAGES):
            send(producer, TOPIC, [number], tag="paid" if number % 10 == 0 else "open")
        broker.expire(admin)
        yield broker.namesrv


@pytest.mark.parametrize("name", ["java-5.5.0", "java-4.9.8", "go"])
@pytest.mark.parametrize(("tags", "expected"), [("*", range(MESSAGES)), ("paid", range(0, MESSAGES, 10))])
def test_a_push_consumer_begins_in_the_tiered_storage(
    namesrv: str, client_of: Callable[[str], InteropClient], name: str, tags: str, expected: range
) -> None:
    client = client_of(name)
    assert isinstance(client, ProcessClient)
    listener = client.listen(namesrv, TOPIC, f"push-{next(_groups)}", tags=tags)
    received = listener.wait_for(len(expected), 60.0)
    listener.stop()
    found = sorted((each.queue_id, each.queue_offset, int(each.body.split()[0])) for each in received)
    assert found == sorted((number % QUEUES, number // QUEUES, number) for number in expected)


@pytest.mark.parametrize("name", ["java-5.5.0", "java-4.9.8", "go"])
def test_pulls_begin_in_the_tiered_storage(
    namesrv: str, client_of: Callable[[str], InteropClient], name: str
) -> None:
    client = client_of(name)
    for api in client.pulls:
        received = client.pull(namesrv, TOPIC, f"pull-{next(_groups)}", api=api, count=MESSAGES, seconds=60)
        assert sorted(int(each.body.split()[0]) for each in received) == list(range(MESSAGES))
