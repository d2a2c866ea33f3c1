"""ACL 1.0 over real sockets: account files, enforced, watched, changed and migrated."""

import asyncio
import json
import logging
import stat
from pathlib import Path

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.signing import SignedPeer, signed
from broker.talk import beat, heartbeat, pull, send
from protocol.test_plain_acl import DOCUMENTED
from rmqpy.config import broker as broker_config
from rmqpy.control.access import plain_files
from rmqpy.errors import ConfigError
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.access import ListAcls, ListUsers
from rmqpy.protocol.requests.plain_acl import (
    DeleteAccount,
    GetAccountVersions,
    UpdateAccount,
    UpdateWhiteAddresses,
)
from wire import Peer, Refusal

NO_PERMISSION = 16
SECRET = "12345678"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with the file of Apache's documentation, which is looked at often."""
    monkeypatch.setattr("rmqpy.control.startup.storage.WATCH_SECONDS", 0.02)
    (tmp_path / "home" / "conf").mkdir(parents=True)
    (tmp_path / "home" / "conf" / "plain_acl.yml").write_text(DOCUMENTED)
    return tmp_path / "home"


@pytest.fixture
async def plain(start: Start, home: Path) -> Cluster:
    return await start(aclEnable="true", rocketmqHome=str(home))


async def until_served(peer: Peer, topic: str, code: int) -> None:
    async with asyncio.timeout(20):
        while (await send(peer, topic)).code != code:
            pass


async def decisions(peer: SignedPeer) -> dict[str, int]:
    """Return the results of the requests that the file covers."""
    found = {f"send {topic}": (await send(peer, topic)).code for topic in ("topicA", "topicB", "topicC", "x")}
    for topic, group in (
        ("topicB", "groupB"),
        ("topicC", "groupC"),
        ("topicA", "groupB"),
        ("topicB", "groupA"),
    ):
        found[f"beat {topic} {group}"] = (await beat(peer, heartbeat("c1", topic, group=group))).code
        # A message, none, or another offset: not a refusal.
        found[f"pull {topic} {group}"] = min((await pull(peer, group, topic)).code, NO_PERMISSION)
    for code, ext in (
        (RequestCode.UPDATE_AND_CREATE_TOPIC, {"topic": "topicB", "readQueueNums": "4", "writeQueueNums": "4",
         "perm": "6", "defaultTopic": "TBW102", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0",
         "order": "false"}),
        (RequestCode.UPDATE_BROKER_CONFIG, {}),
        (RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "groupB"}),
    ):  # fmt: skip
        found[code.name] = min((await peer.call(code, ext)).code, NO_PERMISSION)
    return found


async def test_account_permissions_survive_migration(plain: Cluster, home: Path) -> None:
    async def of_all(address: str) -> list[dict[str, int]]:
        async with (
            await signed(address, "rocketmq2", SECRET) as admin,
            await signed(address, "RocketMQ", SECRET) as user,
            await signed(address, "RocketMQ", "87654321") as wrong,
        ):
            for topic in ("topicA", "topicB", "topicC"):
                await send(admin, topic)
            assert (await send(wrong, "topicB")).code == NO_PERMISSION
            return [await decisions(admin), await decisions(user)]

    admin, user = before = await of_all(plain.broker.address)
    assert NO_PERMISSION not in admin.values()
    allowed = {name for name, code in user.items() if code != NO_PERMISSION}
    assert allowed == {
        "send topicB", "beat topicB groupB", "pull topicB groupB", "beat topicC groupC", "pull topicC groupC",
    }  # fmt: skip
    await plain.broker.stop()
    migrated = {
        "authenticationEnabled": "true",
        "authorizationEnabled": "true",
        "migrateAuthFromV1Enabled": "true",
        "rocketmqHome": str(home),
    }
    broker = made_broker(plain.folder.parent, plain.namesrv, migrated)
    async with broker:
        after = await of_all(broker.address)
    assert before == after
    # Once: later changes stay.
    migrated["migrateAuthFromV1Enabled"] = "false"
    broker = made_broker(plain.folder.parent, plain.namesrv, migrated)
    async with broker, await signed(broker.address, "rocketmq2", SECRET) as root:
        assert len((await root.ask(ListUsers())).body or ()) == 2
        assert len((await root.ask(ListAcls())).body or ()) == 1


async def test_changed_account_file_applies_to_open_connections(
    plain: Cluster, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = home / "conf" / "plain_acl.yml"
    async with await signed(plain.broker.address, "RocketMQ", SECRET) as user:
        assert (await send(user, "topicB")).code == 0
        file.write_text(DOCUMENTED.replace("topicB=PUB|SUB", "topicB=SUB"))
        await until_served(user, "topicB", NO_PERMISSION)
        # Half a file changes nothing.
        file.write_text("accounts: [")
        async with asyncio.timeout(20):
            while "not valid YAML" not in caplog.text:
                await send(user, "topicB")
        assert (await pull(user, "groupB", "topicB")).code != NO_PERMISSION
        file.write_text(DOCUMENTED)
        await until_served(user, "topicB", 0)
        # Another file in the same folder.
        (home / "conf" / "acl" / "more").mkdir(parents=True)
        (home / "conf" / "acl" / "more" / "a.yaml").write_text(
            "accounts:\n- {accessKey: another, secretKey: another-secret, defaultTopicPerm: PUB}\n"
        )
        async with await signed(plain.broker.address, "another") as another:
            await until_served(another, "topicB", 0)
        file.unlink()
        await until_served(user, "topicB", NO_PERMISSION)
    assert SECRET not in caplog.text


async def test_white_listed_addresses_need_no_signature(plain: Cluster, home: Path) -> None:
    file = home / "conf" / "plain_acl.yml"
    async with (
        await signed(plain.broker.address) as nobody,
        await signed(plain.broker.address, "RocketMQ", "wrong") as wrong,
    ):
        assert (await send(nobody, "topicA")).code == NO_PERMISSION
        file.write_text(DOCUMENTED.replace("whiteRemoteAddress:\n", "whiteRemoteAddress: 127.0.0.1\n"))
        await until_served(wrong, "topicA", 0)
        assert (await send(nobody, "topicA")).code == NO_PERMISSION
        file.write_text(DOCUMENTED.replace("192.168.0.*", "127.0.*.*"))
        await until_served(nobody, "topicA", 0)
        assert (await nobody.call(RequestCode.GET_BROKER_CONFIG)).code == 0


async def test_tools_change_accounts_and_white_lists(
    plain: Cluster, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "rmqpy.audit")
    file, address = home / "conf" / "plain_acl.yml", plain.broker.address
    async with (
        await signed(address, "rocketmq2", SECRET) as admin,
        await signed(address, "RocketMQ", SECRET) as user,
    ):
        new = UpdateAccount(
            access_key="billing", secret_key="billing-secret", topic_perms="orders=PUB, x=SUB"
        )
        with pytest.raises(Refusal, match="no permission to Update Cluster"):
            await user.ask(new)
        await admin.ask(new)
        async with await signed(address, "billing") as billing:
            assert (await send(billing, "orders")).code == 0
            assert (await send(billing, "x")).code == NO_PERMISSION
            await admin.ask(UpdateAccount(access_key="billing", default_topic_perm="PUB"))
            assert (await send(billing, "another")).code == 0
            await admin.ask(DeleteAccount(access_key="billing"))
            assert (await send(billing, "orders")).code == NO_PERMISSION
        for wrong in (
            UpdateAccount(access_key="short", secret_key="billing-secret"),
            UpdateAccount(access_key="no-secret"),
            UpdateAccount(),
            DeleteAccount(access_key="billing"),
            UpdateWhiteAddresses(global_white_addrs="10.0.0.0/8"),
            UpdateWhiteAddresses(global_white_addrs="*", acl_file_full_path="/etc/passwd"),
        ):
            with pytest.raises(Refusal):
                await admin.ask(wrong)
        found = await admin.ask(GetAccountVersions())
        assert json.loads(found.version)["counter"] == 3
        assert json.loads(found.all_acl_file_version)[str(file)]["counter"] == 3
        await admin.ask(UpdateWhiteAddresses(global_white_addrs="127.0.0.1,10.0.0.1"))
    async with await signed(address) as nobody:
        assert (await send(nobody, "topicA")).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "User:rocketmq2" in caplog.text
    assert "created the account billing" in caplog.text
    assert "secret" not in caplog.text


async def test_accounts_need_acl_enable(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        with pytest.raises(Refusal, match="aclEnable is off"):
            await peer.ask(UpdateAccount(access_key="billing", secret_key="billing-secret"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"aclEnable": "true", "authenticationEnabled": "true", "rocketmqHome": "/"}, "exclude each other"),
        ({"aclEnable": "true"}, "rocketmqHome"),
        ({"migrateAuthFromV1Enabled": "true"}, "rocketmqHome"),
    ],
)
def test_settings_that_contradict_each_other_stop_the_start(
    given: dict[str, str], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    with pytest.raises(ConfigError, match=reason):
        broker_config.read(given)


async def test_unreadable_account_file_prevents_the_start(plain: Cluster, home: Path) -> None:
    await plain.broker.stop()
    (home / "conf" / "plain_acl.yml").write_text("accounts: [{accessKey: account, secretKey: hidden}]")
    settings = {"aclEnable": "true", "rocketmqHome": str(home)}
    broker = made_broker(plain.folder.parent, plain.namesrv, settings)
    with pytest.raises(ConfigError, match=r"plain_acl\.yml cannot be read: account account") as caught:
        async with broker:
            pass
    assert "hidden" not in str(caught.value)


def test_the_watch_is_as_often_as_the_original_s() -> None:
    assert plain_files.WATCH_SECONDS == 5
