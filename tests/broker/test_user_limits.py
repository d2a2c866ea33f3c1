"""Limits of users: requests beyond them are told to retry, and other users are not delayed."""

from broker.conftest import Start
from broker.signing import add_user, entry, signed
from broker.talk import send

BUSY = 2
ON = {
    "authenticationEnabled": "true",
    "authorizationEnabled": "true",
    "initAuthenticationUser": '{"username":"root","password":"root-secret"}',
}


async def test_user_requests_per_second_are_limited_per_user(start: Start) -> None:
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
        # Over both connections together: a second's worth, plus the refill meanwhile.
        answers = [await send(peer, "orders") for _ in range(30) for peer in (alice, second)]
        refused = [answer for answer in answers if answer.code != 0]
        assert 20 <= len(answers) - len(refused) < 60
        assert refused
        assert {answer.code for answer in refused} == {BUSY}
        assert (refused[0].remark or "").startswith(
            "[OVERLOAD]User:alice has reached the limit of 20 requests a second"
        )
        assert (await send(bob, "orders")).code == 0
        assert {(await send(root, "orders")).code for _ in range(60)} == {0}, "super users have no limit"


async def test_user_bytes_per_second_are_limited(start: Start) -> None:
    cluster = await start(**ON, maxBytesPerSecondPerUser="100000")
    async with (
        await signed(cluster.broker.address, "root") as root,
        await signed(cluster.broker.address, "alice") as alice,
    ):
        await add_user(root, "alice", entry("Topic:orders", "Pub"))
        assert (await send(alice, "orders", body=b"x" * 200_000)).code == 0
        refused = await send(alice, "orders")
        assert (refused.code, "100000 bytes a second" in (refused.remark or "")) == (BUSY, True)


async def test_user_connections_are_limited(start: Start) -> None:
    cluster = await start(**ON, maxConnectionsPerUser="2")
    address = cluster.broker.address
    async with await signed(address, "root") as root, await signed(address, "alice") as third:
        await add_user(root, "alice", entry("Topic:orders", "Pub"))
        async with await signed(address, "alice") as first, await signed(address, "alice") as second:
            for peer in (first, second):
                assert (await send(peer, "orders")).code == 0
            refused = await send(third, "orders")
            assert (refused.code, "2 connections" in (refused.remark or "")) == (BUSY, True)
            # A change of the limits closes no existing connection.
            await add_user(root, "bob")
            assert (await send(first, "orders")).code == 0
            assert (await send(third, "orders")).code == BUSY
        # The others end as soon as the broker notices.
        while (await send(third, "orders")).code != 0:
            pass
