"""Unreadable tables: they prevent every start, not only the first, until an operator decides."""

import json
from pathlib import Path

import pytest

from broker.conftest import made_broker
from broker.talk import send
from rmqpy.config.namesrv import NameServerConfig
from rmqpy.errors import ConfigError
from rmqpy.namesrv import NameServer
from rmqpy.protocol.requests.groups import SubscriptionGroup, UpdateAndCreateSubscriptionGroup
from rmqpy.protocol.requests.kv import GetKv, PutKv
from rmqpy.protocol.requests.timers import GetTimerMetrics
from rmqpy.protocol.requests.topics import GetAllTopicConfig, UpdateAndCreateTopic
from waiting import until_async
from wire import Peer

TABLES = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")
#: Files of counts by topic, with the place and kind of a count in them.
COUNTS = {"timermetrics": ("timingCount", "later"), "transactionMetrics": ("transactionCount", "half")}
#: The file contents, by ending of the name.
DAMAGE = {
    "both cut off": {"": '{"dataVersion":{', ".bak": '{"dataVersion":'},
    "no backup": {"": '{"dataVersion":{'},
    "both empty": {"": "", ".bak": ""},
    "empty, no backup": {"": "\n"},
    "not UTF-8": {"": b"\xff\xfe".decode("latin-1"), ".bak": "[]"},
    "put aside by an earlier start": {".damaged": "{"},
    "put aside, and the backup is damaged": {".damaged": "{", ".bak": "{"},
}


def lay(folder: Path, name: str, damage: dict[str, str]) -> dict[str, bytes]:
    """Put these files in place of a table, start, and return the files afterwards, by name."""
    for old in folder.glob(f"{name}*"):
        old.unlink()
    for ending, text in damage.items():
        (folder / f"{name}{ending}").write_bytes(text.encode("latin-1"))
    return found(folder, name)


def found(folder: Path, name: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob(f"{name}*")}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
@pytest.mark.parametrize("name", TABLES)
async def test_start_refuses_a_table_with_damaged_files(
    tmp_path: Path, name: str, damage: dict[str, str]
) -> None:
    config = tmp_path / "store/config"
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await peer.ask(UpdateAndCreateSubscriptionGroup(body=SubscriptionGroup(group_name="billing")))
    before = lay(config, name, damage)
    for _ in range(2):
        with pytest.raises(ConfigError) as refused:
            async with made_broker(tmp_path, "", {}):
                pass
        assert name in str(refused.value)
        for each in before:
            assert str(config / each) in str(refused.value), "it names what has to be moved away"
        assert found(config, name) == before, "the next start finds what this one did"
    for each in before:
        (config / each).rename(tmp_path / each)
    async with made_broker(tmp_path, "", {}):
        pass


async def test_damaged_table_is_set_aside_if_its_backup_is_valid(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = tmp_path / "store/config"
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        await peer.ask(UpdateAndCreateTopic(topic="orders"))
        await peer.ask(UpdateAndCreateTopic(topic="refunds"))
    for damage in ("{", ""):
        (config / "topics.json.bak").write_bytes((config / "topics.json").read_bytes())
        (config / "topics.json").write_text(damage)
        caplog.clear()
        async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
            assert {"orders", "refunds"} <= (
                await peer.ask(GetAllTopicConfig())
            ).body.topic_config_table.keys()
        assert (config / "topics.json.damaged").read_text() == damage
        assert [text for text in caplog.messages if "used its backup" in text and "topics.json" in text]
    async with made_broker(tmp_path, "", {}):
        """A file that was set aside does not block a start once a valid one exists."""


async def test_a_table_that_may_not_be_read_is_not_replaced_by_its_backup(tmp_path: Path) -> None:
    config = tmp_path / "store/config"
    async with made_broker(tmp_path, "", {}):
        pass
    whole = (config / "topics.json").read_bytes()
    (config / "topics.json.bak").write_bytes(whole)
    (config / "topics.json").unlink()
    (config / "topics.json").mkdir()
    with pytest.raises(ConfigError, match=r"topics\.json cannot be read: .*directory"):
        async with made_broker(tmp_path, "", {}):
            pass


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
async def test_unreadable_counts_are_recomputed(
    tmp_path: Path, damage: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    """They follow from the store, and are for an Apache broker that takes the folder over."""
    config = tmp_path / "store/config"
    config.mkdir(parents=True)
    for name in COUNTS:
        lay(config, name, damage)
    async with made_broker(tmp_path, "", {}) as broker, await Peer.connect(broker.address) as peer:
        told = [text for text in caplog.messages if "counting again" in text]
        assert [sum(name in text for text in told) for name in COUNTS] == [1, 1]
        assert (await send(peer, "later", i="TIMER_DELAY_SEC\x01600\x02")).code == 0
        assert (await send(peer, "half", i="TRAN_MSG\x01true\x02PGROUP\x01p\x02", f="4")).code == 0
        await until_async(lambda: peer.ask(GetTimerMetrics()), lambda answer: "later" in answer.timing_count)
    for name, (member, topic) in COUNTS.items():
        assert json.loads((config / name).read_text())[member][topic]["count"] == 1
    caplog.clear()
    async with made_broker(tmp_path, "", {}):
        assert not [text for text in caplog.messages if "counting again" in text]


async def test_a_name_server_does_not_start_without_its_values_either(tmp_path: Path) -> None:
    path = tmp_path / "kvConfig.json"
    config = NameServerConfig(listen_port=0, kv_path=str(path), store_path="")
    async with NameServer(config) as server, await Peer.connect(server.address) as peer:
        await peer.ask(PutKv(namespace="n", key="k", value="v"))
    whole = path.read_text()
    for damage in DAMAGE.values():
        before = lay(tmp_path, "kvConfig.json", damage)
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"kvConfig\.json"):
                async with NameServer(config):
                    pass
            assert found(tmp_path, "kvConfig.json") == before
    lay(tmp_path, "kvConfig.json", {"": whole, ".damaged": "{"})
    async with NameServer(config) as server, await Peer.connect(server.address) as peer:
        assert (await peer.ask(GetKv(namespace="n", key="k"))).value == "v"
