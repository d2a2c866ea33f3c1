"""Sets of brokers with elections, in this process: a controller of ours, and brokers under it."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from broker.conftest import made_broker
from rmqpy.broker import Broker
from rmqpy.config.controller import ControllerConfig
from rmqpy.controller import ControllerServer
from rmqpy.protocol.requests.controller import GetReplicaInfo, ReplicaInfo
from rmqpy.protocol.requests.leadership import GetBrokerEpochCache
from rmqpy.protocol.requests.routes import MASTER_ID
from waiting import until_async
from wire import Peer, Refusal

NAME = "broker-a"


class Elected:
    """One controller, and the brokers of one set."""

    def __init__(self, folder: Path, namesrv: str, controller: str, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.controller = controller
        self._namesrv = namesrv
        self._stack = stack

    @classmethod
    async def start(cls, folder: Path, namesrv: str, stack: AsyncExitStack) -> "Elected":
        """Start the controller; `stack` stops everything."""
        config = ControllerConfig(
            listen_port=0,
            controller_path=str(folder / "controller"),
            store_path=str(folder / "controller.properties"),
        )
        controller = await stack.enter_async_context(ControllerServer(config))
        return cls(folder, namesrv, controller.address, stack)

    def store(self, number: int) -> Path:
        """The folder of a broker's data."""
        return self.folder / str(number) / "store"

    def made(self, number: int, **settings: str) -> Broker:
        """A broker of the set, not started."""
        elected = {"enableControllerMode": "true", "controllerAddr": self.controller}
        return made_broker(self.folder / str(number), self._namesrv, {**elected, **settings})

    async def broker(self, number: int, **settings: str) -> Broker:
        """Start a broker; return it once the set has a master. The first broker leads."""
        broker = await self._stack.enter_async_context(self.made(number, **settings))
        info = await until_async(self.info, lambda info: info.master_broker_id is not None, failing=Refusal)
        if info.master_address == broker.address:
            await self.wait_leading(broker)
        return broker

    @staticmethod
    async def wait_leading(broker: Broker) -> None:
        """Wait until a broker that was elected leads: its parts start again."""

        async def broker_id() -> int:
            async with await Peer.connect(broker.address) as peer:
                return (await peer.ask(GetBrokerEpochCache())).body.broker_id

        failing = (OSError, asyncio.IncompleteReadError, Refusal)
        await until_async(broker_id, lambda found: found == MASTER_ID, failing=failing)

    async def pair(self, **settings: str) -> tuple[Broker, Broker]:
        """A master with the id 1, and a slave with the id 2, in sync."""
        master, slave = await self.broker(1, **settings), await self.broker(2, **settings)
        await self.wait_in_sync(1, 2)
        return master, slave

    async def info(self) -> ReplicaInfo:
        """The master, and the replicas in sync."""
        async with await Peer.connect(self.controller) as peer:
            return await peer.ask(GetReplicaInfo(broker_name=NAME))

    async def in_sync(self) -> list[int]:
        known = (await self.info()).body
        return [] if known is None else sorted(known.sync_state_set)

    async def wait_in_sync(self, *ids: int) -> None:
        """Wait until the replicas in sync are these."""
        await until_async(self.in_sync, lambda found: found == list(ids))
