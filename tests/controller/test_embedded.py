"""A controller inside a name server: its port, its keys in namesrv.conf."""

from pathlib import Path

import pytest

from benchmarks.processes import free_ports
from rmqpy.config import namesrv
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.codes import ResponseCode
from rmqpy.protocol.requests.controller import GetControllerMetadata
from wire import Peer


async def test_a_name_server_runs_a_controller_on_a_separate_port(tmp_path: Path) -> None:
    port = free_ports(1)
    given = {
        "listenPort": "0",
        "kvConfigPath": "",
        "enableControllerInNamesrv": "true",
        "controllerDLegerPeers": f"n0-127.0.0.1:{port}",
        "controllerDLegerSelfId": "n0",
        "controllerStorePath": str(tmp_path / "controller"),
        "masterLeaseMillis": "900",
    }
    reading = namesrv.read(given)
    assert reading.warnings == []
    async with NameServer(reading.config) as server:
        assert server.controller_address == f"127.0.0.1:{port}"
        async with await Peer.connect(f"127.0.0.1:{port}") as peer:
            assert (await peer.ask(GetControllerMetadata())).is_leader
        async with await Peer.connect(server.address) as peer:
            frame = await peer.call(GetControllerMetadata.code)
            assert frame.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
            assert "a controller serves it, on its own port" in (frame.remark or "")


def test_an_embedded_controller_needs_an_address() -> None:
    with pytest.raises(ConfigError, match="set controllerDLegerPeers=n0-HOST:PORT"):
        namesrv.read({"enableControllerInNamesrv": "true"})


def test_keys_of_a_controller_are_no_mistake_in_a_name_server_without_one() -> None:
    reading = namesrv.read({"controllerDLegerGroup": "g", "controllerThreadPoolNums": "16"})
    assert [each for each in reading.warnings if "controller" in each] == []
    assert reading.config.controller is None
