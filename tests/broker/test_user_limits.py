"""Limits of users: what is beyond is told to try again, and others are not held up."""

from broker.conftest import Start
from broker.signing import add_user, entry, signed
from broker.talk import send

BUSY = 2
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


async def test_a_user_may_make_so_many_requests_a_second_and_others_theirs(start: Start) -> None:
    cluster = await start(**ON, maxRequestsPerSecondPerUser="20")
    address = cluster.broker.address
    async with (
        await signed(address, "root") as root,
        await signed(address, "alice") as alice,
        await signed(address, "alice") as second,
        await signed(address, "bob") as bob,
    ):
        for name in ("alice", "bob"):
            await add_user(root, name, entry("Topic:orders", "Pub"))
        # Over both connections together; a second's worth, and what time has given back.
        answers = [await send(peer, "orders") for _ in range(30) for peer in (alice, second)]
        refused = [answer for answer in answers if answer.code != 0]
        assert 20 <= len(answers) - len(refused) < 60
        assert refused
        assert {answer.code for answer in refused} == {BUSY}
        assert (refused[0].remark or "").startswith("[OVERLOAD]User:alice may use 20 requests a second")
        assert (await send(bob, "orders")).code == 0
        assert {(await send(root, "orders")).code for _ in range(60)} == {0}, "super users have no limit"


async def test_a_user_may_send_so_many_bytes_a_second(start: Start) -> None:
    cluster = await start(**ON, maxBytesPerSecondPerUser="100000")
    async with (
        await signed(cluster.broker.address, "root") as root,
        await signed(cluster.broker.address, "alice") as alice,
    ):
        await add_user(root, "alice", entry("Topic:orders", "Pub"))
        assert (await send(alice, "orders", body=b"x" * 200_000)).code == 0
        refused = await send(alice, "orders")
        assert (refused.code, "100000 bytes a second" in (refused.remark or "")) == (BUSY, True)


async def test_a_user_may_have_so_many_connections(start: Start) -> None:
    cluster = await start(**ON, maxConnectionsPerUser="2")
    address = cluster.broker.address
    async with await signed(address, "root") as root, await signed(address, "alice") as third:
        await add_user(root, "alice", entry("Topic:orders", "Pub"))
        async with await signed(address, "alice") as first, await signed(address, "alice") as second:
            for peer in (first, second):
                assert (await send(peer, "orders")).code == 0
            refused = await send(third, "orders")
            assert (refused.code, "2 connections" in (refused.remark or "")) == (BUSY, True)
            # A change of the rules takes no connection from who has one.
            await add_user(root, "bob")
            assert (await send(first, "orders")).code == 0
            assert (await send(third, "orders")).code == BUSY
        # The others are gone, as soon as the broker has noticed.
        while (await send(third, "orders")).code != 0:
            pass
