"""Users that lose permissions while their clients are connected: the effects on Java, Go and our own clients.

Goal: once an operator has a reply, no message leaves or arrives, not even for a held pull at the
broker; and Apache's clients continue by themselves once their user has its permissions again. Method: a producer and a
push consumer of each client stay connected; their user is disabled, loses a policy, or is deleted.
"""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from rmqpy.errors import AuthError, SendError
from waiting import until

from .clients import InteropClient, ProcessClient
from .messages import MessageSpec
from .signed_java import SignedJava
from .test_access import WAIT_S, address_of, of_the_second_kind

Change = Callable[[rmqpy.Admin], object]

MINE = ("billing", "billing-secret")
QUIET_S = 1.0
"""Nothing may arrive meanwhile, where a message takes some milliseconds."""


def make(admin: rmqpy.Admin) -> None:
    admin.create_user(*MINE)
    allow(admin)
    admin.set_rule("billing", "Group:billing", ["Sub"])


def allow(admin: rmqpy.Admin) -> None:
    admin.set_rule("billing", "Topic:orders", ["Pub", "Sub", "Get"])


WAYS: dict[str, tuple[Change, str, Change]] = {
    "disabled": (
        lambda admin: admin.update_user("billing", is_enabled=False),
        "is disabled",
        lambda admin: admin.update_user("billing", is_enabled=True),
    ),
    "a policy removed": (
        lambda admin: admin.delete_rule("billing", "Topic:orders"),
        "no permission to Pub Topic:orders",
        allow,
    ),
    "deleted": (lambda admin: admin.delete_user("billing"), "is unknown", make),
}

pytestmark = pytest.mark.timeout(300, func_only=True)


def test_java_clients_are_refused_immediately_and_resume_with_their_permissions(
    signed_java: SignedJava,
) -> None:
    with of_the_second_kind(Path()) as config, rmqpy.Admin(config) as admin, rmqpy.Producer(config) as others:
        admin.create_topic("orders")
        signed_java.use_no_tls()
        signed_java.ask("open", "billing", address_of(config))
        signed_java.ask("listen", "billing", address_of(config), "orders", "billing")
        try:
            for revoke, reason, restore in WAYS.values():
                assert "SEND_OK" in signed_java.ask("again", "billing", "orders")
                assert "heard 1" in signed_java.ask("heard", "billing", 1, round(WAIT_S * 1000))
                revoke(admin)
                refused = signed_java.ask("again", "billing", "orders")
                assert "CODE: 16" in refused
                assert reason in refused
                others.send("orders", b"not for them")
                assert "heard 0" in signed_java.ask("heard", "billing", 1, round(QUIET_S * 1000))
                restore(admin)
                assert "heard 1" in signed_java.ask("heard", "billing", 1, round(WAIT_S * 1000))
        finally:
            signed_java.ask("leave", "")


def test_go_clients_are_refused_immediately_and_resume_with_their_permissions(
    client_of: Callable[[str], InteropClient],
) -> None:
    client = client_of("go")
    assert isinstance(client, ProcessClient)
    message = [MessageSpec(b"x")]
    with of_the_second_kind(Path()) as config, rmqpy.Admin(config) as admin, rmqpy.Producer(config) as others:
        admin.create_topic("orders")
        namesrv = address_of(config)
        listener = client.listen(namesrv, "orders", "billing", credentials=MINE)

        def heard() -> int:
            """Different messages: one whose commit was refused may come again."""
            return len({each.offset_id for each in listener.consumed()})

        try:
            for number, (revoke, reason, restore) in enumerate(WAYS.values()):
                client.send(namesrv, "orders", message, credentials=MINE)
                until(lambda: heard() >= 2 * number + 1, WAIT_S)  # noqa: B023 - called before the next way
                revoke(admin)
                with pytest.raises(RuntimeError, match=reason):
                    client.send(namesrv, "orders", message, credentials=MINE)
                others.send("orders", b"not for them")
                # A consumer of Apache shows no event that proves that a message is not coming.
                time.sleep(QUIET_S)
                assert heard() == 2 * number + 1
                restore(admin)
                until(lambda: heard() >= 2 * number + 2, WAIT_S)  # noqa: B023 - called before the next way
        finally:
            listener.stop()


@pytest.mark.parametrize("way", WAYS)
def test_our_clients_raise_the_missing_permission_and_consumers_end(way: str) -> None:
    revoke, reason, restore = WAYS[way]
    with of_the_second_kind(Path()) as config, rmqpy.Admin(config) as admin, rmqpy.Producer(config) as others:
        admin.create_topic("orders")
        mine = rmqpy.ClientConfig(namesrv=config.namesrv, credentials=rmqpy.Credentials(*MINE))
        consumed: list[str] = []
        consumer = rmqpy.PushConsumer("billing", mine, start_from="earliest")
        consumer.on("orders", "*", lambda message: consumed.append(message.text()))
        consumer.start()
        with rmqpy.Producer(mine, retries=0) as producer, rmqpy.PullConsumer("billing", mine) as puller:
            sent = producer.send("orders", b"first")
            puller.assign([sent.queue])
            until(lambda: consumed == ["first"])
            revoke(admin)
            with pytest.raises(SendError, match=reason) as refused:
                producer.send("orders", b"refused")
            assert isinstance(refused.value.__cause__, AuthError)
            others.send("orders", b"not for them")
            with pytest.raises(AuthError):
                puller.poll(timeout=WAIT_S)
            with pytest.raises(AuthError):
                consumer.wait(WAIT_S)
            assert consumed == ["first"]
            restore(admin)
            producer.send("orders", b"again")
