"""The id that a controller gave to a broker, in files of Apache's format."""

from pathlib import Path

import pytest

from rmqpy.control.election.identity_file import AppliedId, IdentityFile
from rmqpy.errors import ConfigError


def identity(folder: Path, name: str = "broker-a") -> IdentityFile:
    return IdentityFile(folder, "DefaultCluster", name)


async def test_a_confirmed_id_is_found_again(tmp_path: Path) -> None:
    first = identity(tmp_path)
    await first.load()
    assert first.broker_id is None
    await first.note_applied(AppliedId(3, "127.0.0.1:10911;1700000000000"))
    assert await first.applied() == AppliedId(3, "127.0.0.1:10911;1700000000000")
    await first.confirm(3)
    second = identity(tmp_path)
    await second.load()
    assert second.broker_id == 3
    assert await second.applied() is None
    assert (tmp_path / "brokerIdentity").read_text() == "DefaultCluster#broker-a#3"


async def test_a_file_of_apaches_broker_is_read(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("DefaultCluster#broker-a#1")
    found = identity(tmp_path)
    await found.load()
    assert found.broker_id == 1


async def test_the_identity_of_another_broker_is_refused(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("DefaultCluster#broker-b#1")
    with pytest.raises(ConfigError, match="identity of broker-b"):
        await identity(tmp_path).load()


async def test_an_unreadable_identity_is_refused(tmp_path: Path) -> None:
    (tmp_path / "brokerIdentity").write_text("broker-a")
    with pytest.raises(ConfigError, match="cluster#broker#id"):
        await identity(tmp_path).load()
