"""Access control over real sockets: authentication, permissions, and effects on other users."""

import asyncio
import json
import logging
import re
import stat
from collections.abc import AsyncIterator
from typing import Any, NamedTuple

import pytest

from broker.conftest import Cluster, Start, made_broker
from broker.signing import SignedPeer, add_user, allow, entry, signature, signed
from broker.talk import beat, heartbeat, pull, send
from rmqpy.protocol.codes import RequestCode
from rmqpy.protocol.requests.access import (
    DeleteAcl,
    DeleteUser,
    GetAcl,
    GetUser,
    ListAcls,
    ListUsers,
    UpdateUser,
    UserInfo,
)
from rmqpy.protocol.requests.brokers import GetBrokerConfig
from rmqpy.protocol.requests.messages import ViewMessageById
from wire import BINARY, Peer, Refusal

ROOT = json.dumps({"username": "root", "password": "root-secret"})
ON = {"authenticationEnabled": "true", "authorizationEnabled": "true", "initAuthenticationUser": ROOT}
NO_PERMISSION = 16
UNIQUE = "UNIQ_KEY\x01AC110001000018B4AAC2000000000001\x02"


class Guarded(NamedTuple):
    """A broker with access control, and its super user."""

    cluster: Cluster
    root: SignedPeer

    @property
    def address(self) -> str:
        return self.cluster.broker.address


@pytest.fixture
async def guarded(start: Start) -> AsyncIterator[Guarded]:
    cluster = await start(**ON)
    async with await signed(cluster.broker.address, "root") as root:
        yield Guarded(cluster, root)


async def test_without_access_control_every_request_is_served(cluster: Cluster) -> None:
    async with await Peer.connect(cluster.broker.address) as peer:
        assert (await send(peer, "orders")).code == 0
        assert (await send(peer, "orders", AccessKey="nobody", Signature="wrong")).code == 0


@pytest.mark.parametrize("encoding", [0, BINARY])
async def test_a_request_is_served_that_its_user_has_signed(guarded: Guarded, encoding: int) -> None:
    async with await signed(guarded.address, "root", encoding=encoding) as peer:
        assert (await send(peer, "orders", body=b"\x00\xff")).code == 0
        wrong = await signed(guarded.address, "root", "another", encoding=encoding)
        unknown = await signed(guarded.address, "mallory", encoding=encoding)
        nobody = await signed(guarded.address, encoding=encoding)
        for other in (wrong, unknown, nobody):
            async with other:
                answer = await send(other, "orders")
                assert answer.code == NO_PERMISSION
                assert "secret" not in (answer.remark or "").replace("secret key", "")
    # Only the first message exists.
    found = await pull(guarded.root, "billing", "orders", 0)
    assert (found.code, (found.ext or {})["maxOffset"]) in [(0, "1"), (19, "0")]


async def test_changed_signed_request_is_refused(guarded: Guarded) -> None:
    ext = {"topic": "orders", "queueId": "0", "AccessKey": "root"}
    ext["Signature"] = signature("root-secret", ext, b"")
    async with await Peer.connect(guarded.address) as peer:
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, ext)).code != NO_PERMISSION
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, ext | {"topic": "other"})).code == NO_PERMISSION
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, ext, b"x")).code == NO_PERMISSION
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, ext | {"more": "1"})).code == NO_PERMISSION
        # If a name repeats, the last value is signed and used.
        assert (await peer.call(RequestCode.GET_MAX_OFFSET, ext)).code != NO_PERMISSION


@pytest.mark.parametrize("encoding", [0, BINARY])
async def test_signature_covers_field_boundaries(guarded: Guarded, encoding: int) -> None:
    """A signature is over values alone, so that it does not show this."""
    for topic in ("orders", "orders-archive"):
        assert (await send(guarded.root, topic)).code == 0
    sent = {
        "a": "producers", "b": "orders-archive", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000",
        "h": "0", "i": UNIQUE, "j": "0", "k": "false", "m": "false", "n": "broker-a", "AccessKey": "root",
    }  # fmt: skip
    pulled = {
        "consumerGroup": "billing", "topic": "orders-archive", "queueId": "0", "queueOffset": "0", "maxMsgNums": "1",
        "sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0",
        "expressionType": "TAG", "requestSource": "-1", "bname": "broker-a", "OnsChannel": "ALIYUN",
        "AccessKey": "root",
    }  # fmt: skip
    async with await Peer.connect(guarded.address, encoding=encoding) as peer:
        for code, ext, name, body in (
            (RequestCode.SEND_MESSAGE_V2, sent, "b", b"hello"),
            (RequestCode.PULL_MESSAGE, pulled, "topic", b""),
        ):
            ext["Signature"] = signature("root-secret", ext, body)
            assert (await peer.call(code, ext, body)).code != NO_PERMISSION
            moved = ext | {name: "orders", f"{name}Rest": "-archive"}
            assert signature("root-secret", moved, body) == ext["Signature"]
            answer = await peer.call(code, moved, body)
            assert (answer.code, f"{name}Rest" in (answer.remark or "")) == (NO_PERMISSION, True)


async def test_policies_apply_and_a_refusal_names_the_rule(guarded: Guarded) -> None:
    await add_user(guarded.root, "alice", entry("Topic:orders", "Pub"), entry("Topic:bill*", "Sub"))
    await allow(
        guarded.root, "alice", entry("Group:billing", "Sub"), entry("Topic:billed", "Sub", decision="Deny")
    )
    for topic in ("orders", "bills", "billed"):
        assert (await send(guarded.root, topic)).code == 0
    async with await signed(guarded.address, "alice") as alice:
        assert (await send(alice, "orders")).code == 0
        refused = await send(alice, "bills")
        assert (refused.code, refused.remark) == (
            NO_PERMISSION,
            "User:alice has no permission to Pub Topic:bills from 127.0.0.1: no policy allows it",
        )
        # A cold request and a hot one are refused alike, and both of whatever shape.
        assert (await beat(alice, heartbeat("c1", "bills"))).code == 0
        assert (await beat(alice, heartbeat("c1", "bills", "billed"))).code == NO_PERMISSION
        assert (await beat(alice, heartbeat("c1", "bills", group="other"))).code == NO_PERMISSION
        assert (await pull(alice, "billing", "bills")).code == 0
        denied = await pull(alice, "billing", "billed")
        assert (denied.code, (denied.remark or "").endswith("Deny of Sub on Topic:billed")) == (
            NO_PERMISSION,
            True,
        )
        assert (await pull(alice, "other", "bills")).code == NO_PERMISSION
        # The retry topic is the group's, and so is that of another group.
        assert (await pull(alice, "billing", "%RETRY%billing")).code != NO_PERMISSION
        assert (await pull(alice, "billing", "%RETRY%other")).code == NO_PERMISSION
        config = await alice.call(RequestCode.GET_BROKER_CONFIG)
        assert (config.code, "Get Cluster:c1" in (config.remark or "")) == (NO_PERMISSION, True)


async def test_policies_apply_to_their_source_addresses(guarded: Guarded) -> None:
    await add_user(guarded.root, "alice", entry("Topic:orders", "Pub", sources=("127.0.0.0/8", "::1")))
    await add_user(guarded.root, "bob", entry("Topic:orders", "Pub", sources=("10.0.0.0/8",)))
    async with await signed(guarded.address, "alice") as alice, await signed(guarded.address, "bob") as bob:
        assert (await send(alice, "orders")).code == 0
        assert (await send(bob, "orders")).code == NO_PERMISSION


async def test_changed_policies_apply_to_open_connections(guarded: Guarded) -> None:
    rights = (entry("Topic:orders", "Pub", "Sub"), entry("Group:billing", "Sub"))
    await add_user(guarded.root, "alice", *rights)
    async with (
        await signed(guarded.address, "alice") as alice,
        await signed(guarded.address, "alice") as waiting,
    ):
        assert (await send(alice, "orders")).code == 0
        assert (await beat(alice, heartbeat("c1", "orders"))).code == 0
        # It waits for the second message of the queue.
        ext = {
            "consumerGroup": "billing", "topic": "orders", "queueId": "0", "queueOffset": "1", "maxMsgNums": "32",
            "sysFlag": "6", "commitOffset": "0", "suspendTimeoutMillis": "20000", "subscription": "*",
            "subVersion": "0", "expressionType": "TAG",
        }  # fmt: skip
        parked = await waiting.send(RequestCode.PULL_MESSAGE, ext)
        # Replies on one connection are in order, so this one was processed later.
        await waiting.call(RequestCode.QUERY_CONSUMER_OFFSET, ext)
        await guarded.root.ask(DeleteAcl(subject="User:alice", resource="Topic:orders"))
        assert (await send(alice, "orders")).code == NO_PERMISSION
        assert (await beat(alice, heartbeat("c1", "orders"))).code == NO_PERMISSION
        assert (await send(guarded.root, "orders")).code == 0
        answer = await waiting.receive()
        assert (answer.opaque, answer.code, answer.body) == (parked, NO_PERMISSION, b"")
        await allow(guarded.root, "alice", *rights)
        assert (await send(alice, "orders")).code == 0
        await guarded.root.ask(UpdateUser(username="alice", body=UserInfo(user_status="disable")))
        assert "disabled" in ((await send(alice, "orders")).remark or "")
        await guarded.root.ask(DeleteUser(username="alice"))
        assert (await send(alice, "orders")).code == NO_PERMISSION


async def test_record_permission_depends_on_its_own_topic(guarded: Guarded) -> None:
    await add_user(
        guarded.root, "alice", entry("Topic:mine", "Pub", "Sub", "Get"), entry("Group:mine", "Sub")
    )
    theirs = await send(guarded.root, "theirs", body=b"theirs")
    half = await send(guarded.root, "theirs", i=f"{UNIQUE}TRAN_MSG\x01true\x02PGROUP\x01producers\x02", f="4")
    assert (theirs.code, half.code) == (0, 0)
    async with await signed(guarded.address, "alice") as alice:
        await send(alice, "mine")
        # By the position of a message in another topic.
        with pytest.raises(Refusal, match=re.escape("Get Topic:theirs")):
            await alice.ask(ViewMessageById(offset=0, topic="mine"))
        with pytest.raises(Refusal, match=re.escape("Get Topic:theirs")):
            await alice.ask(ViewMessageById(offset=0))
        assert await guarded.root.ask(ViewMessageById(offset=0))
        # Returned to one's own group, which would be given it.
        assert (await pull(alice, "mine", "mine")).code in (0, 19, 20)
        back = await alice.call(
            RequestCode.CONSUMER_SEND_MSG_BACK, {"group": "mine", "offset": "0", "delayLevel": "1"}
        )
        assert (back.code, "Sub Topic:theirs" in (back.remark or "")) == (NO_PERMISSION, True)
        # Committed or rolled back in the name of one's own topic.
        position = int((half.ext or {})["msgId"][-16:], 16)
        end = {
            "producerGroup": "producers",
            "tranStateTableOffset": (half.ext or {})["queueOffset"],
            "commitLogOffset": str(position),
            "commitOrRollback": "8",
            "msgId": "x",
            "topic": "mine",
        }
        refused = await alice.call(RequestCode.END_TRANSACTION, end)
        assert (refused.code, "Pub Topic:theirs" in (refused.remark or "")) == (NO_PERMISSION, True)
        assert (await guarded.root.call(RequestCode.END_TRANSACTION, end)).code == 0


async def test_only_super_users_create_and_change_super_users(guarded: Guarded) -> None:
    await add_user(guarded.root, "admin", entry("Cluster:*", "Update", "Get"))
    async with await signed(guarded.address, "admin") as admin:
        await add_user(admin, "bob")
        for attempt in (
            add_user(admin, "second", kind="Super"),
            admin.ask(UpdateUser(username="bob", body=UserInfo(user_type="Super"))),
            admin.ask(UpdateUser(username="root", body=UserInfo(password="taken"))),
            admin.ask(DeleteUser(username="root")),
        ):
            with pytest.raises(Refusal, match="by super user"):
                await attempt
        with pytest.raises(Refusal, match="The user is existed"):
            await add_user(admin, "bob")
        with pytest.raises(Refusal, match="The subject is not exist"):
            await admin.ask(GetAcl(subject="User:nobody"))
        assert (await admin.ask(GetAcl(subject="User:bob"))).body is None
        assert (await admin.ask(GetUser(username="nobody"))).body is None
    await add_user(guarded.root, "second", kind="Super")
    async with await signed(guarded.address, "second") as second:
        assert (await send(second, "orders")).code == 0


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (entry("Topics:a", "Pub"), "is not a resource"),
        (entry("Topic:a*b", "Pub"), "is not a resource"),
        (entry("Topic:a"), "The actions is empty"),
        (entry("Topic:a", "Any"), "can not be Any"),
        (entry("Topic:a", "Fly"), "is not an action"),
        (entry("Topic:a", "Pub", sources=("10.0.0.0/33",)), "is not an address"),
        (entry("Topic:a", "Pub", decision="Maybe"), "is not a decision"),
        (entry("", "Pub"), "The resource is null"),
    ],
)
async def test_invalid_policy_is_refused_as_a_whole(guarded: Guarded, wrong: Any, reason: str) -> None:
    await add_user(guarded.root, "alice")
    with pytest.raises(Refusal, match=reason):
        await allow(guarded.root, "alice", entry("Topic:orders", "Pub"), wrong)
    assert (await guarded.root.ask(ListAcls())).body is None


async def test_no_secret_leaves_the_broker_and_tables_are_private(
    guarded: Guarded, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    await add_user(guarded.root, "alice", entry("Topic:orders", "Pub"))
    await guarded.root.ask(UpdateUser(username="alice", body=UserInfo(password="next-secret")))
    async with await signed(guarded.address, "alice", "wrong-secret") as alice:
        await send(alice, "orders")
    found = [
        repr(await guarded.root.ask(GetUser(username="alice"))),
        repr(await guarded.root.ask(ListUsers())),
        repr(await guarded.root.ask(GetBrokerConfig())),
        caplog.text,
    ]
    assert "alice" in found[0]
    assert "alice" in found[1]
    assert not [text for text in found if re.search("(root|alice|next|wrong)-secret", text)]
    for name in ("users.json", "acls.json", "users.json.bak"):
        mode = (guarded.cluster.folder / "config" / name).stat().st_mode
        assert stat.S_IMODE(mode) == 0o600, name


async def test_users_and_policies_are_durable_before_the_reply(guarded: Guarded) -> None:
    await add_user(guarded.root, "alice", entry("Topic:orders", "Pub"))
    config = guarded.cluster.folder / "config"
    users, acls = (
        json.loads((config / "users.json").read_text()),
        json.loads((config / "acls.json").read_text()),
    )
    assert users["userTable"]["alice"]["password"] == "alice-secret"
    assert acls["aclTable"]["User:alice"]["policies"][0]["entries"][0]["resource"] == "Topic:orders"
    await guarded.cluster.broker.stop()
    broker = made_broker(guarded.cluster.folder.parent, guarded.cluster.namesrv, ON)
    async with broker, await signed(broker.address, "alice") as alice:
        assert (await send(alice, "orders")).code == 0
        assert (await send(alice, "other")).code == NO_PERMISSION


async def test_guessing_address_is_slowed_alone(guarded: Guarded) -> None:
    async with await signed(guarded.address, "root", "wrong") as guessing:
        loop = asyncio.get_running_loop()
        took = []
        for _ in range(8):
            begin = loop.time()
            assert (await send(guessing, "orders")).code == NO_PERMISSION
            took.append(loop.time() - begin)
        # The first five immediately, then after 100, 200 and 400 ms.
        assert sum(took[5:]) >= 0.65
        waiting = asyncio.create_task(send(guessing, "orders"))
        assert (await send(guarded.root, "orders")).code == 0
        assert not waiting.done()
        assert (await waiting).code == NO_PERMISSION


async def test_white_listed_codes_need_no_signature_or_policy(start: Start) -> None:
    cluster = await start(**ON, authenticationWhitelist="30, 28", authorizationWhitelist="30")
    queue = {"topic": "orders", "queueId": "0"}
    async with (
        await signed(cluster.broker.address, "root") as root,
        await signed(cluster.broker.address) as nobody,
    ):
        await send(root, "orders")
        assert (await nobody.call(RequestCode.GET_MAX_OFFSET, queue)).code == 0
        assert (await nobody.call(RequestCode.GET_MIN_OFFSET, queue)).code == NO_PERMISSION
        # Not authenticated, and therefore without a policy.
        assert (await nobody.call(RequestCode.GET_BROKER_RUNTIME_INFO)).code == NO_PERMISSION


async def test_refusals_and_changes_are_audited(guarded: Guarded, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="rmqpy.audit")
    await add_user(guarded.root, "alice", entry("Topic:orders", "Pub"))
    async with await signed(guarded.address, "alice") as alice:
        await send(alice, "bills")
        await alice.call(RequestCode.GET_BROKER_CONFIG)
    await guarded.root.call(RequestCode.UPDATE_BROKER_CONFIG, {}, b"deleteWhen=05")
    await guarded.root.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "bil\nls"})
    await guarded.root.call(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "bills"})
    expected = [
        r"User:root from 127\.0\.0\.1:\d+ created User:alice \(Normal, enable\)",
        r"User:root from 127\.0\.0\.1:\d+ changed the policies of User:alice: Custom Allow Pub on Topic:orders",
        r"User:root from 127\.0\.0\.1:\d+ UPDATE_BROKER_CONFIG: 'Update Cluster'",
        r"User:root from 127\.0\.0\.1:\d+ DELETE_TOPIC_IN_BROKER: 'Delete Topic:bills'",
        r"refused SEND_MESSAGE_V2 from 127\.0\.0\.1:\d+: User:alice has no permission to Pub Topic:bills",
        r"refused GET_BROKER_CONFIG from 127\.0\.0\.1:\d+: User:alice has no permission to Get Cluster:c1",
    ]
    async with asyncio.timeout(20):
        while not all(re.search(line, caplog.text) for line in expected):
            await guarded.root.call(RequestCode.GET_BROKER_RUNTIME_INFO)
