"""Static topics: plans, and the commands at a real cluster."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rmqpy
from commandline import runner
from rmqpy.admin.static_plan import StaticLayout, decided, grown, layout_of, moved
from rmqpy.cli.mq import admin as mqadmin
from rmqpy.errors import ConfigError, TopicExists, TopicNotFound
from rmqpy.protocol.static_topics import Segment, TopicMapping, fault, merged
from rmqpy.testing import Cluster

BROKERS = ("broker-a", "broker-b", "broker-c")
NOW_MS = 1_700_000_000_000


def empty(topic: str = "bills") -> StaticLayout:
    return StaticLayout(topic, 0, 0, {}, {})


def led(layout: StaticLayout) -> Counter[str | None]:
    return Counter(layout.leader(number) for number in layout.queues)


# ---- plans ----


def test_new_queues_go_to_the_brokers_that_lead_the_fewest() -> None:
    plan = grown(empty(), 4, ["broker-a"], NOW_MS)
    assert plan.queues[3] == (Segment(bname="broker-a", queue_id=3, logic_offset=0),)
    assert led(grown(plan, 9, BROKERS, NOW_MS)) == {"broker-a": 4, "broker-b": 3, "broker-c": 2}


def test_a_plan_moves_only_as_many_queues_as_an_even_spread_needs() -> None:
    before = grown(empty(), 8, ["broker-a"], NOW_MS)
    after = moved(before, BROKERS, NOW_MS)
    assert led(after) == {"broker-a": 3, "broker-b": 3, "broker-c": 2}
    assert after.undecided() == [number for number in range(8) if after.leader(number) != "broker-a"]
    assert moved(decided(after, dict.fromkeys(after.undecided(), 0)), BROKERS, NOW_MS).undecided() == []


CHANGES = st.lists(
    st.tuples(st.integers(1, 12), st.sets(st.sampled_from(BROKERS), min_size=1), st.integers(0, 30_000)),
    min_size=1,
    max_size=6,
)


@given(CHANGES)
def test_every_broker_takes_every_step_of_any_change(
    changes: list[tuple[int, set[str], int]],
) -> None:
    layout, total = empty(), 0
    known: dict[str, TopicMapping | None] = dict.fromkeys(BROKERS)
    for count, names, end in changes:
        total += count
        steps = [grown(layout, total, sorted(names), NOW_MS)]
        steps.append(moved(steps[-1], sorted(names), NOW_MS))
        steps.append(decided(steps[-1], dict.fromkeys(steps[-1].undecided(), end)))
        for step in steps:
            for broker in BROKERS:
                wanted = step.mapping(broker)
                assert fault(wanted, broker) is None
                known[broker] = merged(known[broker], wanted, is_forced=False)
        layout = steps[-1]
        shares = led(layout).values()
        assert set(led(layout)) <= names
        assert max(shares) - min(shares) <= 1
        for segments in layout.queues.values():
            starts = [segment.logic_offset for segment in segments]
            assert starts == sorted(set(starts))
            assert all(start % 10_000 == 0 for start in starts)
        again = layout_of("bills", [each for each in known.values() if each], layout.local)
        assert {number: list(found) for number, found in again.queues.items()} == {
            number: list(found) for number, found in layout.queues.items()
        }


# ---- a cluster ----


@pytest.fixture(scope="module")
def three() -> Iterator[Cluster]:
    with Cluster(brokers=BROKERS) as cluster:
        yield cluster


@pytest.fixture
def admin(three: Cluster) -> Iterator[rmqpy.Admin]:
    with rmqpy.Admin(three.namesrv) as admin:
        yield admin


def test_a_static_topic_is_created_grows_and_moves(admin: rmqpy.Admin) -> None:
    made = admin.create_static_topic("made", 4, brokers=["broker-a"])
    assert [(row.queue, row.broker, row.begin, row.is_leader) for row in made] == [
        (number, "broker-a", 0, True) for number in range(4)
    ]
    assert admin.static_topic("made") == made
    plan = admin.create_static_topic("made", 6, brokers=["broker-b"], is_plan=True)
    assert admin.static_topic("made") == made
    assert admin.create_static_topic("made", 6, brokers=["broker-b"]) == plan == admin.static_topic("made")
    spread = admin.remap_static_topic("made")
    assert Counter(row.broker for row in spread if row.is_leader) == dict.fromkeys(BROKERS, 2)
    assert {row.begin for row in spread if row.generation} == {10_000}
    assert admin.static_topic("made") == spread
    assert admin.remap_static_topic("made") == spread


def test_refusals_of_static_topics(admin: rmqpy.Admin) -> None:
    admin.create_topic("ordinary")
    with pytest.raises(TopicExists, match="is not static"):
        admin.create_static_topic("ordinary", 4)
    with pytest.raises(TopicNotFound, match="static topic"):
        admin.static_topic("ordinary")
    with pytest.raises(TopicNotFound, match="static topic"):
        admin.remap_static_topic("absent")
    with pytest.raises(ConfigError, match="broker-z"):
        admin.create_static_topic("refused", 4, brokers=["broker-z"])
    admin.create_static_topic("refused", 4)
    with pytest.raises(ConfigError, match="cannot have fewer"):
        admin.create_static_topic("refused", 3)


@pytest.mark.parametrize("steps", range(6))
def test_a_remap_that_stopped_halfway_is_finished_by_another(
    admin: rmqpy.Admin, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"halfway-{steps}"
    admin.create_static_topic(name, 4, brokers=["broker-a"])
    with rmqpy.Producer(admin.client_config) as producer:
        for number in range(40):
            producer.send(name, str(number))
    asked = 0
    connection = type(admin._cluster())
    ask = connection.ask

    async def interrupted(self: Any, address: str, request: Any) -> Any:
        nonlocal asked
        asked += type(request).__name__ == "UpdateAndCreateStaticTopic"
        if asked > steps:
            raise KeyboardInterrupt
        return await ask(self, address, request)

    with monkeypatch.context() as patched:
        patched.setattr(connection, "ask", interrupted)
        with pytest.raises(KeyboardInterrupt):
            admin.remap_static_topic(name, brokers=["broker-b", "broker-c"])
    admin.remap_static_topic(name, brokers=["broker-b", "broker-c"])
    found = admin.static_topic(name)
    assert Counter(row.broker for row in found if row.is_leader) == {"broker-b": 2, "broker-c": 2}
    assert all(row.begin >= 0 for row in found)
    with rmqpy.PullConsumer(f"{name}-readers", admin.client_config, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(name))
        bodies: Counter[bytes] = Counter()
        while len(bodies) < 40:
            bodies.update(message.body for message in consumer.poll(1.0))
    assert bodies == {str(number).encode(): 1 for number in range(40)}


def test_the_commands_show_plans_and_mappings(
    three: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    run = runner(three.namesrv, monkeypatch, capfd)
    typed = ("topic", "static", "typed", "--queues", "2", "--broker", "broker-a")
    lines = "template={queue} {broker} {begin} {leads}"
    assert run(*typed, "--plan", "-o", lines)[1] == "0 broker-a 0 True\n1 broker-a 0 True\n"
    assert run("topic", "mapping", "typed")[0] == 4
    assert run(*typed)[0] == 0
    code, out, _ = run("topic", "remap", "typed", "--broker", "broker-b", "-o", lines)
    assert code == 0
    assert out.splitlines()[1] == "0 broker-b 10000 True"
    assert run("topic", "mapping", "typed", "-o", lines)[1] == out


def test_mqadmin_has_the_commands_of_apaches_tool(
    three: Cluster, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", three.namesrv)
    assert mqadmin.run(["updateStaticTopic", "-b", "broker-a", "-t", "tool", "-qn", "2"]) == 0
    assert mqadmin.run(["remappingStaticTopic", "-b", "broker-b,broker-c", "-t", "tool"]) == 0
    out = capfd.readouterr().out
    assert "broker-c" in out
    assert mqadmin.run(["updateStaticTopic", "-t", "tool", "-qn", "2"]) == 2
