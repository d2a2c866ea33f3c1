"""Further listeners of a name server: their clients receive the broker addresses of the listener's rules."""

import pytest

import rmqpy
from benchmarks.processes import free_ports
from fakebroker import Connect, FakeBroker, StartNameServer, topics
from rmqpy.config.listeners import Listeners, Member
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import AddressError, ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.kv import UpdateNameServerConfig
from rmqpy.protocol.requests.routes import GetBrokerMembers, GetClusterInfo, GetRoute
from wire import Peer

INNER = "10.42.0.7:10911"
MASTER = Member("c1", "broker-a", 0)


@pytest.fixture
def outer() -> str:
    return f"127.0.0.1:{free_ports(1)}"


async def addresses(peer: Peer) -> list[str]:
    """A broker's address in each answer that has one."""
    route = (await peer.ask(GetRoute(topic="orders"))).body
    info = await peer.ask(GetClusterInfo())
    members = (await peer.ask(GetBrokerMembers(cluster_name="c1", broker_name="ba"))).broker_member_group
    found = [
        route.broker_datas[0].broker_addrs,
        info.broker_addr_table["ba"].broker_addrs,
        members.broker_addrs,
    ]
    return [each[0] for each in found]


async def registered(server: NameServer, connect: Connect) -> None:
    broker = FakeBroker(await connect(server), name="ba", address=INNER, topics=topics("orders", "payments"))
    await broker.register()


async def test_each_listener_has_its_own_addresses(
    start: StartNameServer, connect: Connect, outer: str
) -> None:
    server = await start(listeners_given=f"outer={outer}", advertised=f"outer {INNER}=203.0.113.7:31911")
    await registered(server, connect)
    assert await addresses(await connect(server)) == [INNER] * 3
    async with await Peer.connect(outer) as peer:
        assert await addresses(peer) == ["203.0.113.7:31911"] * 3


async def test_rules_change_while_the_server_runs(
    start: StartNameServer, connect: Connect, outer: str
) -> None:
    server = await start(listeners_given=f"outer={outer}")
    await registered(server, connect)
    async with await Peer.connect(outer) as peer:
        assert await addresses(peer) == [INNER] * 3
        rule = "advertisedAddresses=outer *={broker}.mq.example.com:{port}"
        await (await connect(server)).ask(UpdateNameServerConfig(body=rule))
        assert await addresses(peer) == ["ba.mq.example.com:10911"] * 3


@pytest.mark.parametrize(
    ("rules", "member", "address", "seen"),
    [
        ("", MASTER, INNER, INNER),
        ("outer 10.42.0.7:10911=203.0.113.7:31911", MASTER, INNER, "203.0.113.7:31911"),
        ("outer 10.42.0.7:10912=203.0.113.7:31911", MASTER, INNER, INNER),
        ("outer 10.42.0.0/16=203.0.113.7:{port}", MASTER, INNER, "203.0.113.7:10911"),
        ("outer 10.42.0.0/16=203.0.113.7:{port+20000}", MASTER, INNER, "203.0.113.7:30911"),
        ("outer 10.43.0.0/16=203.0.113.7:{port}", MASTER, INNER, INNER),
        (
            "outer 10.42.0.0/16=203.0.113.7:{port}",
            MASTER,
            "broker-a.internal:10911",
            "broker-a.internal:10911",
        ),
        ("outer fd00::/8=[2001:db8::7]:{port}", MASTER, "[fd00::1]:10911", "[2001:db8::7]:10911"),
        (
            "outer *={broker}-{id}.{cluster}.example.com:{port}",
            Member("c1", "b", 2),
            INNER,
            "b-2.c1.example.com:10911",
        ),
        ("outer 10.42.0.7:10911=one:1; outer *=other:2", MASTER, INNER, "one:1"),
        ("outer *=other:2; outer 10.42.0.7:10911=one:1", MASTER, INNER, "other:2"),
        ("lan *=other:2", MASTER, INNER, INNER),
    ],
)
def test_the_first_rule_that_matches_replaces_an_address(
    rules: str, member: Member, address: str, seen: str
) -> None:
    listeners = Listeners.read("outer=0.0.0.0:30876; lan=10.0.0.5:9876", rules)
    assert listeners.seen("outer", address, member) == seen
    assert listeners.seen(None, address, member) == address


def test_a_connection_belongs_to_the_listener_that_accepted_it() -> None:
    listeners = Listeners.read("any=0.0.0.0:30876; one=10.0.0.5:30876; other=[::1]:40876", "")
    assert listeners.name_of("10.0.0.5:30876") == "one"
    assert listeners.name_of("10.0.0.6:30876") == "any"
    assert listeners.name_of("[::1]:40876") == "other"
    assert listeners.name_of("10.0.0.5:9876") is None


@pytest.mark.parametrize(
    ("listeners", "rules", "named"),
    [
        ("0.0.0.0:30876", "", "is not a listener"),
        ("outer=0.0.0.0", "", "is not an address"),
        ("outer=h:1;outer=h:2", "", "listed twice"),
        ("outer=h:1;lan=h:1", "", "the same address"),
        ("outer=h:1", "inner *=h:1", "unknown listener 'inner'"),
        ("outer=h:1", "outer", "is not a rule"),
        ("outer=h:1", "outer *=h", "is not a rule"),
        ("outer=h:1", "outer 10.42.0.7/16=h:1", "is not a rule"),
        ("outer=h:1", "outer *={rack}:1", "is not a rule"),
        ("outer=h:1", "outer *={host+1}:1", "numbers can only be added to port"),
    ],
)
def test_a_mistake_in_the_settings_is_named(listeners: str, rules: str, named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        NameServerConfig(listeners_given=listeners, advertised=rules)


async def test_a_listener_whose_port_is_taken_stops_the_start(start: StartNameServer, outer: str) -> None:
    await start(listeners_given=f"outer={outer}")
    with pytest.raises(AddressError, match="listeners"):
        await start(listeners_given=f"outer={outer}")


async def test_doctor_says_which_addresses_clients_of_a_listener_receive(
    start: StartNameServer, connect: Connect, outer: str
) -> None:
    away = f"127.0.0.1:{free_ports(1)}"
    server = await start(listeners_given=f"outer={outer}", advertised=f"outer *={away}")
    await registered(server, connect)
    async with rmqpy.AsyncAdmin(rmqpy.ClientConfig(namesrv=server.address, request_timeout=1.0)) as admin:
        checks = await admin.health()
    (found,) = [check for check in checks if check.check.startswith("listener outer")]
    assert found.level == "warn"
    assert f"clients of listener outer receive {away} for ba: not reachable from here" in found.found
