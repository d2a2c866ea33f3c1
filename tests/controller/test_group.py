"""A group of three controllers: one leads, the others go on without it, and strangers are not heard."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from benchmarks.processes import free_ports
from fakereplica import NAME, Replica
from rmqpy.config.access import AccessConfig
from rmqpy.config.controller import ControllerConfig
from rmqpy.controller import ControllerServer
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import (
    ControllerMetadata,
    GetControllerMetadata,
    GetReplicaInfo,
    GroupCall,
)
from waiting import until_async
from wire import Peer, Refusal

SECRET = "0123456789abcdef0123456789abcdef"
IDS = ("n0", "n1", "n2")


class Group:
    """Three controllers in this process."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        ports = [free_ports(1) for _ in IDS]
        self.addresses = {name: f"127.0.0.1:{port}" for name, port in zip(IDS, ports, strict=True)}
        self.running: dict[str, ControllerServer] = {}

    def config(self, name: str, **settings: Any) -> ControllerConfig:
        fields: dict[str, Any] = {
            "peers_given": ";".join(f"{each}-{address}" for each, address in self.addresses.items()),
            "self_id_given": name,
            "controller_path": str(self._folder / name),
            "store_path": str(self._folder / f"{name}.properties"),
            "group_secret": SECRET,
            "http_port": -1,
        }
        return ControllerConfig(**fields | settings)

    async def start(self, name: str, **settings: Any) -> None:
        server = ControllerServer(self.config(name, **settings))
        await server.start()
        self.running[name] = server

    async def stop(self, name: str) -> None:
        await self.running.pop(name).stop(grace_ms=0)

    async def metadata(self, name: str) -> ControllerMetadata:
        async with await Peer.connect(self.addresses[name]) as peer:
            return await peer.ask(GetControllerMetadata())

    async def leader(self) -> str:
        """The leader that every running controller names, itself one of them."""

        async def named() -> set[str | None]:
            return {(await self.metadata(name)).controller_leader_id or None for name in self.running}

        found = await until_async(
            named, wanted=lambda found: len(found) == 1 and found <= self.running.keys()
        )
        name = found.pop()
        assert name is not None
        return name


@pytest.fixture
async def group(tmp_path: Path) -> AsyncIterator[Group]:
    group = Group(tmp_path)
    for name in IDS:
        await group.start(name)
    yield group
    for name in list(group.running):
        await group.stop(name)


async def connected(stack: AsyncExitStack, address: str, broker_id: int) -> Replica:
    replica = Replica(await stack.enter_async_context(await Peer.connect(address)), broker_id)
    await replica.apply()
    await replica.beat()
    return replica


async def test_every_controller_names_the_same_leader(group: Group) -> None:
    leader = await group.leader()
    for name in IDS:
        known = await group.metadata(name)
        assert known.is_leader is (name == leader)
        assert known.controller_leader_address == group.addresses[leader]
        assert known.peers == "".join(f"{each}:{address};" for each, address in group.addresses.items())


async def test_a_follower_refuses_requests_and_the_next_leader_knows_what_was_agreed(group: Group) -> None:
    leader = await group.leader()
    async with AsyncExitStack() as stack:
        replica = await connected(stack, group.addresses[leader], 1)
        elected = await replica.elect()
        follower = next(name for name in IDS if name != leader)
        other = Replica(await stack.enter_async_context(await Peer.connect(group.addresses[follower])), 2)
        with pytest.raises(Refusal) as refused:
            await other.apply()
        assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
        await group.stop(leader)
        successor = await group.leader()
        assert successor != leader
        async with await Peer.connect(group.addresses[successor]) as peer:
            info = await peer.ask(GetReplicaInfo(broker_name=NAME))
        assert info.master_epoch == elected.master_epoch
    await group.start(leader)
    assert await group.leader() in IDS


async def test_without_a_majority_nothing_is_decided_until_another_is_back(group: Group) -> None:
    leader = await group.leader()
    lost = [name for name in IDS if name != leader]
    for name in lost:
        await group.stop(name)
    address = group.addresses[leader]
    await until_async(lambda: group.metadata(leader), wanted=lambda known: not known.controller_leader_id)
    async with await Peer.connect(address) as peer:
        with pytest.raises(Refusal) as refused:
            await Replica(peer, 1).apply()
        assert refused.value.code == ResponseCode.CONTROLLER_NOT_LEADER
    await group.start(lost[0])
    async with AsyncExitStack() as stack:
        await connected(stack, group.addresses[await group.leader()], 1)


async def test_what_a_group_agreed_on_outlives_a_restart_of_all(group: Group) -> None:
    async with AsyncExitStack() as stack:
        await connected(stack, group.addresses[await group.leader()], 1)
    for name in IDS:
        await group.stop(name)
    for name in IDS:
        await group.start(name)
    async with await Peer.connect(group.addresses[await group.leader()]) as peer:
        info = await peer.ask(GetReplicaInfo(broker_name=NAME))
    assert info.master_broker_id is None


async def test_calls_without_the_seal_of_the_group_are_refused(group: Group) -> None:
    leader = await group.leader()
    caller = next(name for name in IDS if name != leader)
    async with await Peer.connect(group.addresses[leader]) as peer:
        for seal in ("", "0" * 64):
            ask = GroupCall(group="controllers", caller=caller, target=leader, seal=seal, body=b"{}")
            with pytest.raises(Refusal, match="is not another controller of this group") as refused:
                await peer.ask(ask)
            assert refused.value.code == ResponseCode.NO_PERMISSION


async def test_a_controller_with_another_secret_takes_no_part(
    group: Group, caplog: pytest.LogCaptureFixture
) -> None:
    leader = await group.leader()
    stranger = next(name for name in IDS if name != leader)
    await group.stop(stranger)
    await group.start(stranger, group_secret=SECRET[::-1])
    await until_async(
        lambda: any("compare controllerDLegerGroup" in each.getMessage() for each in caplog.records)
    )
    # At first it names the leader that it followed before.
    await until_async(lambda: group.metadata(stranger), wanted=lambda known: not known.controller_leader_id)
    assert (await group.metadata(leader)).is_leader


def test_groups_that_could_not_trust_each_other_are_refused() -> None:
    far = "n0-10.0.0.1:9878;n1-10.0.0.2:9878;n2-10.0.0.3:9878"
    with pytest.raises(ConfigError, match="set controllerDLegerSelfId"):
        ControllerConfig(peers_given=far)
    with pytest.raises(ConfigError, match="n0, n1, n2 are on other machines: set controllerGroupSecret"):
        ControllerConfig(peers_given=far, self_id_given="n0")
    ControllerConfig(peers_given=far, self_id_given="n0", group_secret=SECRET)
    with pytest.raises(ConfigError, match="sign their calls: set innerClientAuthenticationCredentials"):
        ControllerConfig(
            peers_given=far,
            self_id_given="n0",
            group_secret=SECRET,
            access=AccessConfig(authenticates=True),
        )
    with pytest.raises(ConfigError, match="more than 9"):
        ControllerConfig(peers_given=";".join(f"n{place}-127.0.0.1:{place + 1}" for place in range(10)))


async def test_the_folder_of_a_single_controller_is_refused(
    start: Callable[..., Awaitable[ControllerServer]], tmp_path: Path
) -> None:
    await (await start()).stop()
    group = Group(tmp_path)
    with pytest.raises(ConfigError, match="has the log of a single controller"):
        await ControllerServer(group.config("n0", controller_path=str(tmp_path / "controller"))).start()
