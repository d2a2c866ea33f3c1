"""`rmqpy mcp` with the client of the official SDK, over standard input and output, and a real broker."""

import builtins
import json
import os
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import rmqpy
from rmqpy import cli
from rmqpy.errors import ConfigError
from rmqpy.mcp.changes import TOKEN_SECONDS, TOKENS_MAX, Tokens
from rmqpy.server import Standalone
from rmqpy.testing import broker
from waiting import until

mcp = pytest.importorskip("mcp")

READS = {
    "cluster_state",
    "dead_letters",
    "list_groups",
    "list_topics",
    "messages_by_key",
    "newest_messages",
    "preview_create_topic",
    "preview_resend_dead_letters",
    "preview_reset_offsets",
    "show_message",
    "why_is_group_behind",
}
CHANGES = {"create_topic", "resend_dead_letters", "reset_offsets"}


@pytest.fixture(scope="module")
def server() -> Iterator[Standalone]:
    """Ten orders, of which `billing` has committed four, and a dead letter of it."""
    with broker(brokerName="broker-a", defaultTopicQueueNums=1) as server:
        with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
            admin.create_topic("orders", read_queues=1, write_queues=1)
            admin.create_group("billing")
            for number in range(10):
                producer.send("orders", f"order {number}", keys=f"A-{number}", tag="new")

            def refuse(message: Any) -> None:
                raise ValueError("cannot be billed")

            producer.send("refunds", b"refund", keys="R-1")
            biller = rmqpy.PushConsumer("billing", server.namesrv, start_from="earliest", max_attempts=1)
            biller.on("refunds", handler=refuse)
            with biller:
                until(lambda: admin.dead_letters())
            with rmqpy.PullConsumer("billing", server.namesrv, start_from="earliest") as consumer:
                consumer.assign(consumer.queues("orders"))
                [queue] = consumer.assignment()
                consumer.seek(queue, 4)
                consumer.commit()
        yield server


@asynccontextmanager
async def assistant(server: Standalone, *options: str) -> AsyncIterator[Any]:
    """A client of `rmqpy mcp`, which it starts."""
    path = os.pathsep.join([str(Path(rmqpy.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    command = ["-m", "rmqpy", "mcp", "-n", server.namesrv, *options]
    parameters = mcp.StdioServerParameters(command=sys.executable, args=command, env={"PYTHONPATH": path})
    async with mcp.Client(parameters) as client:
        yield client


async def answer(client: Any, tool: str, **arguments: Any) -> dict[str, Any]:
    """What a tool answers."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    # Assistants that know no structures read the same as text.
    assert json.loads(result.content[0].text) == result.structured_content
    found: dict[str, Any] = result.structured_content
    return found


async def refusal(client: Any, tool: str, **arguments: Any) -> str:
    """Why a tool refuses."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.content
    text: str = result.content[0].text
    return text


async def test_without_allow_changes_there_are_only_reading_tools(server: Standalone) -> None:
    async with assistant(server) as client:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools} == READS
        assert all(tool.annotations.read_only_hint and tool.description for tool in tools)
        preview = await answer(client, "preview_reset_offsets", group="billing", topic="orders", to="begin")
        assert "token" not in preview
        assert "without --allow-changes" in preview["next"]
        assert (await client.call_tool("reset_offsets", {"token": "x"})).is_error


async def test_an_assistant_learns_the_state_of_cluster_topics_and_groups(server: Standalone) -> None:
    async with assistant(server) as client:
        state = await answer(client, "cluster_state")
        assert state["brokers"]["rows"][0]["broker"] == "broker-a"
        assert "checks" in state["summary"]
        topics = await answer(client, "list_topics", contains="ORD")
        assert [row["name"] for row in topics["rows"]] == ["orders"]
        groups = await answer(client, "list_groups")
        [billing] = [row for row in groups["rows"] if row["group"] == "billing"]
        assert billing["lag"] >= 6


async def test_an_assistant_learns_why_a_group_is_behind(server: Standalone) -> None:
    async with assistant(server) as client:
        why = await answer(client, "why_is_group_behind", group="billing")
        assert "no member is online" in why["summary"]
        assert why["reasons"][0]["advice"] == "start a consumer of billing"
        [queue] = [row for row in why["queues"]["rows"] if row["topic"] == "orders"]
        assert (queue["offset"], queue["end"], queue["lag"]) == (4, 10, 6)
        wrong = await refusal(client, "why_is_group_behind", group="biling")
        assert "group 'biling' does not exist" in wrong
        assert "did you mean 'billing'?" in wrong


async def test_an_assistant_sees_messages_with_bounded_bodies(server: Standalone) -> None:
    with rmqpy.Producer(server.namesrv) as producer:
        sent = producer.send("large", "é" * 30_000, keys="L-1", properties={"note": "n" * 2_000})
        producer.send("large", b"\xff\xfe")
    async with assistant(server) as client:
        newest = await answer(client, "newest_messages", topic="orders", count=2)
        assert [row["body"] for row in newest["rows"]] == ["order 8", "order 9"]
        [found] = (await answer(client, "messages_by_key", topic="orders", key="A-3"))["rows"]
        assert (found["body"], found["offset"], found["tag"]) == ("order 3", 3, "new")
        by_id = await answer(client, "show_message", message_id=found["offset_message_id"])
        assert by_id["body"] == "order 3"
        cut = await answer(client, "show_message", message_id=sent.message_id, topic="large", body_chars=10)
        assert cut["body"] == "é" * 10 + "… (29990 more characters)"
        assert cut["body_bytes"] == 60_000
        assert len(cut["properties"]["note"]) < 600
        largest = await answer(client, "newest_messages", topic="large", count=2, body_chars=10_000)
        assert len(json.dumps(largest)) < 100_000
        assert largest["rows"][-1]["body_base64"] == "//4="
        too_many = await refusal(client, "newest_messages", topic="orders", count=1_000)
        assert "less than or equal to 20" in too_many
    async with assistant(server, "--no-bodies") as client:
        newest = await answer(client, "newest_messages", topic="orders", count=1)
        assert "--no-bodies" in newest["rows"][0]["body"]


async def test_an_assistant_sees_dead_letters(server: Standalone) -> None:
    async with assistant(server) as client:
        assert (await answer(client, "dead_letters"))["rows"][0]["group"] == "billing"
        [letter] = (await answer(client, "dead_letters", group="billing"))["rows"]
        assert (letter["body"], letter["keys"]) == ("refund", ["R-1"])


async def test_a_reset_moves_to_what_its_preview_showed_and_a_token_works_once(server: Standalone) -> None:
    with rmqpy.Admin(server.namesrv) as admin, rmqpy.Producer(server.namesrv) as producer:
        async with assistant(server, "--allow-changes") as client:
            tools = (await client.list_tools()).tools
            assert {tool.name for tool in tools} == READS | CHANGES
            assert not any(tool.annotations.read_only_hint for tool in tools if tool.name in CHANGES)
            preview = await answer(client, "preview_reset_offsets", group="billing", topic="orders", to="end")
            [row] = preview["queues"]["rows"]
            assert (row["offset"], row["new_offset"]) == (4, 10)
            assert "0 messages would be read again, and 6 skipped" in preview["summary"]
            assert admin.progress("billing", "orders")[0].offset == 4
            # Sent between the two steps: not skipped.
            producer.send("orders", b"order 10")
            wrong = await refusal(client, "create_topic", token=preview["token"])
            assert "the token is for reset_offsets" in wrong
            await answer(client, "reset_offsets", token=preview["token"])
            until(lambda: admin.progress("billing", "orders")[0].offset == 10)
            used = await refusal(client, "reset_offsets", token=preview["token"])
            assert "unknown, was used, or has expired" in used
            wrong = await refusal(
                client, "preview_reset_offsets", group="billing", topic="orders", to="yesterday"
            )
            assert "neither begin, end nor a time" in wrong


async def test_dead_letters_are_resent_and_a_topic_is_created_after_their_previews(
    server: Standalone,
) -> None:
    with rmqpy.Admin(server.namesrv) as admin:
        async with assistant(server, "--allow-changes") as client:
            preview = await answer(client, "preview_resend_dead_letters", group="billing", message_ids=[])
            assert preview["messages"]["total"] == 1
            done = await answer(client, "resend_dead_letters", token=preview["token"])
            assert done["done"] == "1 dead letters were resent to billing."

            async def left() -> int:
                again = await answer(client, "preview_resend_dead_letters", group="billing", message_ids=[])
                return int(again["messages"]["total"])

            [letter] = list(admin.dlq("billing"))
            until(lambda: admin.resent("billing", *letter))
            assert await left() == 0
            preview = await answer(client, "preview_create_topic", topic="invoices", queues=2)
            assert "invoices" not in admin.topics()
            done = await answer(client, "create_topic", token=preview["token"])
            assert done["done"] == "Topic invoices was created on broker-a."
            assert admin.topic_summaries(["invoices"])[0].write_queues == 2
            assert "exists" in await refusal(client, "preview_create_topic", topic="invoices")


async def test_tokens_expire_and_are_bounded() -> None:
    now = 0.0
    tokens = Tokens(lambda: now)

    async def change() -> dict[str, Any]:
        return {}

    first = tokens.new("create_topic", change)
    now = TOKEN_SECONDS
    with pytest.raises(ConfigError, match="has expired"):
        tokens.take("create_topic", first)
    made = [tokens.new("create_topic", change) for _ in range(TOKENS_MAX + 1)]
    with pytest.raises(ConfigError, match="unknown"):
        tokens.take("create_topic", made[0])
    assert tokens.take("create_topic", made[1]) is change


def test_without_the_extra_the_command_names_it(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    imported = builtins.__import__

    def without(name: str, *arguments: Any, **named: Any) -> Any:
        if name.partition(".")[0] == "mcp":
            raise ImportError("No module named 'mcp'")
        return imported(name, *arguments, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    assert cli.run(["mcp"]) == 2
    assert "pip install 'rmqpy[mcp]'" in capfd.readouterr().err
