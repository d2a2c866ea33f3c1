"""Events of the store are in the broker's log."""

import logging
from pathlib import Path

import pytest

from broker.conftest import made_broker
from broker.talk import send
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.namesrv import NameServer
from wire import Peer


async def test_a_torn_tail_that_recovery_cuts_is_logged_with_place_and_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with NameServer(NameServerConfig(listen_port=0, kv_path="", store_path="")) as names:
        async with (
            made_broker(tmp_path, names.address, {}) as broker,
            await Peer.connect(broker.address) as peer,
        ):
            assert (await send(peer, "orders")).code == 0
        log_file = tmp_path / "store/commitlog/00000000000000000000"
        end = len(log_file.read_bytes().rstrip(b"\0"))
        # The last property ends with its separator, so that nothing of the record is a zero.
        with log_file.open("r+b") as file:
            file.seek(end)
            file.write(b"half a record")
        (tmp_path / "store/abort").touch()
        with caplog.at_level(logging.WARNING, "rmqpy.control.store.events"):
            async with made_broker(tmp_path, names.address, {}):
                pass
    # The disk of this machine may be nearly full, which is logged for the folder, too.
    assert [message for message in caplog.messages if message.startswith(str(log_file))] == [
        f"{log_file}: cut at position {end} of the log: the 13 bytes after it were not a whole record"
    ]
