"""Files of settings: encodings, and the lines that an online change keeps."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from rmqpy._native import HandClock
from rmqpy.broker import Broker
from rmqpy.config import broker as broker_config
from rmqpy.config import files, namesrv, profiles, properties, server_tls
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.control.access.plain_files import PlainFiles
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.brokers import UpdateBrokerConfig
from rmqpy.protocol.requests.kv import UpdateNameServerConfig
from wire import Peer

#: A comment that is not ASCII, and a setting with another value than its default.
COMMENT = "# 消息服务器"
#: Encodings in which every key would be unknown: a server with such a file must not start with defaults.
WIDE = ["utf-16", "utf-16-le", "utf-16-be", "utf-32"]


def conf(folder: Path, *lines: str) -> str:
    return "".join(
        f"{line}\n"
        for line in (
            COMMENT,
            "brokerName=broker-b",
            "listenPort=0",
            f"storePathRootDir={folder}/b",
            "authenticationEnabled=false",
            "maxIndexNum=1000",
            *lines,
        )
    )


@asynccontextmanager
async def broker_of(path: Path) -> AsyncIterator[Peer]:
    async with (
        Broker(broker_config.load(path).config, path=path) as broker,
        await Peer.connect(broker.address) as peer,
    ):
        yield peer


@pytest.mark.parametrize("encoding", WIDE)
def test_a_file_in_a_wide_encoding_is_refused_and_not_read_as_defaults(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "settings"
    path.write_bytes("brokerPermission=4\nlistenPort=0\n".encode(encoding))
    for load in (broker_config.load, namesrv.load):
        with pytest.raises(ConfigError, match=r"settings: .*(UTF-16|UTF-32).*save the file as UTF-8"):
            load(path)
    with pytest.raises(ConfigError, match="save the file as UTF-8"):
        server_tls.with_file({"tls.config.file": str(path)})


@pytest.mark.parametrize("encoding", [*WIDE, "gbk", "latin-1"])
def test_other_text_files_are_refused_with_the_place(
    tmp_path: Path, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "[profile.größe]\nnamesrv = '127.0.0.1:1'\n" if encoding == "latin-1" else f"\n{COMMENT}\n"
    path = tmp_path / "profiles.toml"
    path.write_bytes(text.encode(encoding))
    monkeypatch.setenv("RMQPY_PROFILES", str(path))
    with pytest.raises(ConfigError, match=r"profiles.toml: .*save the file as UTF-8"):
        profiles.load()
    with pytest.raises(ConfigError, match="save the file as UTF-8"):
        files.load(path, str)
    assert path.read_bytes() == text.encode(encoding)


@pytest.mark.parametrize("encoding", [*WIDE, "gbk"])
async def test_accounts_in_another_encoding_are_refused_with_the_place(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "conf" / "plain_acl.yml"
    path.parent.mkdir()
    path.write_bytes(f"{COMMENT}\naccounts: []\n".encode(encoding))
    accounts = PlainFiles(tmp_path, HandClock())
    with pytest.raises(ConfigError, match=r"plain_acl.yml cannot be read: .*save the file as UTF-8"):
        await accounts.load()
    with pytest.raises(ConfigError, match=r"plain_acl.yml cannot be read: .*save the file as UTF-8"):
        await accounts.edit(lambda found: found.clear())


def test_byte_order_mark_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "profiles.toml"
    path.write_text("[profile.here]\nnamesrv = '127.0.0.1:1'\n", encoding="utf-8-sig")
    monkeypatch.setenv("RMQPY_PROFILES", str(path))
    assert profiles.get("here").namesrv == "127.0.0.1:1"
    table = tmp_path / "topics.json"
    table.write_text("{}", encoding="utf-8-sig")
    assert files.load(table, str) == "{}"
    settings = tmp_path / "broker.conf"
    settings.write_text("brokerPermission=4\n", encoding="utf-8-sig")
    assert broker_config.load(settings).config.permission == 4


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "big5", "latin-1", "shift-jis"])
async def test_an_online_change_leaves_the_bytes_of_other_lines_alone(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "broker.conf"
    comment = "# für später" if encoding == "latin-1" else "# 中文"
    before = conf(tmp_path).replace(COMMENT, comment).encode(encoding)
    path.write_bytes(before)
    async with broker_of(path) as peer:
        await peer.ask(UpdateBrokerConfig(body="splitMetadataSize=7\n"))
        await peer.ask(UpdateBrokerConfig(body="brokerPermission=4\n"))
    assert path.read_bytes() == before + b"splitMetadataSize=7\nbrokerPermission=4\n"


async def test_a_file_that_became_unreadable_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "broker.conf"
    path.write_text(conf(tmp_path), encoding="utf-8")
    async with broker_of(path) as peer:
        path.write_text(conf(tmp_path), encoding="utf-16")
        answer = await peer.call(25, {}, b"splitMetadataSize=7\n")
    assert answer.code == 1
    assert "save the file as UTF-8" in (answer.remark or "")
    assert path.read_text(encoding="utf-16") == conf(tmp_path)


@pytest.mark.parametrize("value", ["größe", "消息", "a\U0001f600b", "x=y # z\\"])
@pytest.mark.parametrize("encoding", ["utf-8", "gbk"])
def test_a_value_that_was_set_is_read_back_whatever_the_file_has(value: str, encoding: str) -> None:
    before = "# 中文\r\nname=old\r\nlast=1".encode(encoding)
    after = properties.replace(before, {"name": value, "added": value})
    assert properties.parse(properties.decode(after)) == {"name": value, "last": "1", "added": value}
    assert after.startswith("# 中文\r\nname=".encode(encoding))
    assert after.count(b"\n") == after.count(b"\r\n") == 4


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o660])
async def test_an_online_change_keeps_mode_and_link(tmp_path: Path, mode: int) -> None:
    real, path = tmp_path / "real" / "the.conf", tmp_path / "broker.conf"
    real.parent.mkdir()
    real.write_text(conf(tmp_path))
    real.chmod(mode)
    path.symlink_to(real)
    before = real.stat()
    async with broker_of(path) as peer:
        await peer.ask(UpdateBrokerConfig(body="splitMetadataSize=7\n"))
    assert path.is_symlink()
    after = real.stat()
    assert stat.S_IMODE(after.st_mode) == mode
    assert (after.st_uid, after.st_gid) == (before.st_uid, before.st_gid)
    assert "splitMetadataSize=7" in real.read_text()
    backup = real.with_name("the.conf.bak")
    assert stat.S_IMODE(backup.stat().st_mode) == mode


async def test_a_name_servers_file_keeps_its_mode_and_link(tmp_path: Path) -> None:
    real, path = tmp_path / "the.properties", tmp_path / "namesrv.properties"
    real.write_bytes("# 中文\n".encode("gbk"))
    real.chmod(0o600)
    path.symlink_to(real)
    config = NameServerConfig(listen_port=0, kv_path="", store_path=str(path))
    async with NameServer(config) as server, await Peer.connect(server.address) as peer:
        await peer.ask(UpdateNameServerConfig(body="orderMessageEnable=true\n"))
    assert path.is_symlink()
    assert stat.S_IMODE(real.stat().st_mode) == 0o600
    assert real.read_bytes() == "# 中文\norderMessageEnable=true\n".encode("gbk")


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "topics.json"
    files.save(path, "{}")
    os.chown(path, 1234, 1235)
    path.chmod(0o640)
    files.save(path, "{1}")
    found = path.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (1234, 1235, 0o640)


@pytest.mark.parametrize(("before", "after"), [(0o600, 0o600), (0o640, 0o640), (0o644, 0o600)])
def test_a_secret_file_is_never_readable_by_everyone(tmp_path: Path, before: int, after: int) -> None:
    path = tmp_path / "users.json"
    path.write_text("{}")
    path.chmod(before)
    files.save(path, "{1}", is_secret=True)
    assert [stat.S_IMODE(each.stat().st_mode) for each in (path, path.with_name("users.json.bak"))] == [
        after,
        after,
    ]


def test_backup_next_to_a_links_target_is_found(tmp_path: Path) -> None:
    real, path = tmp_path / "real" / "topics.json", tmp_path / "topics.json"
    real.parent.mkdir()
    path.symlink_to(real)
    files.save(path, "first")
    files.save(path, "second")
    assert real.read_text() == "second"
    real.unlink()
    assert files.load(path, str) == "first"
