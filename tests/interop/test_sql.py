"""SQL92 filters of both sides: clients at the other's broker, and ours beside Apache's own evaluator in one JVM.

Goal: the same messages match. SQL_CASES (3000) random pairs of expression and message, `make campaign-sql` for
100,000 of them; SQL_SEED for other ones. Method: half of the expressions follow the grammar and half are words in any
order, so that invalid expressions occur as well. Text after an expression is compared in both modes: ignored, as by
Apache's broker, and refused, as by rmqpy by default.
"""

import base64
import os
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import rmqpy
from rmqpy import errors
from rmqpy._native import sql_error, sql_matches
from rmqpy.message import Sql
from waiting import until

from . import wire
from .clients import InteropClient, ProcessClient
from .servers import Cluster

CASES = int(os.environ.get("SQL_CASES") or 3_000)
SEED = int(os.environ.get("SQL_SEED") or 92)
SOURCE = Path(__file__).with_name("java") / "Evaluations.java"
WAIT_S = 120.0
WANTED = "price BETWEEN 5 AND 12 AND region = 'EU'"
MATCHING = [b"05", b"07", b"09", b"11"]
#: Pairs of one JVM.
BATCH = 100_000

NAMES = ("a", "b", "c", "_x$1", "KEYS")
TEXTS = ("'x'", "'y'", "'it''s'", "''", "'5'", "'true'", "'订单'", "'ab'")
NUMBERS = (
    "0", "1", "5", "10", "2147483647", "2147483648", "3000000000", "9223372036854775807", "5L", "2l",
    "0.5", "5.0", ".5", "5.", "1e2", "2.5E-1", "1.7976931348623157e308", "4.9e-324",
)  # fmt: skip
VALUES = (
    "x", "y", "it's", "5", "5.0", "-5", "+5", " 5 ", "5d", "5f", "1e1", "NaN", "Infinity", "-Infinity", "-0.0", "0",
    "0.0", "true", "TRUE", "false", "yes", "2147483647", "2147483648", "-2147483648", "9223372036854775807",
    "9223372036854775808", "3000000000", "订单", "ab", "abc", "", "05", "1e400", "0.1", "1.0E2", "--5", "5-", ".5",
    "5.", "e5", "inf", "nan",
)  # fmt: skip
WORDS = (
    *NAMES, *TEXTS, *NUMBERS, "AND", "or", "Not", "IS", "NULL", "IN", "BETWEEN", "CONTAINS", "STARTSWITH",
    "ENDSWITH", "TRUE", "FALSE", "=", "<>", "<", "<=", ">", ">=", "+", "-", "(", ")", ",", "IS NULL",
    "IS NOT NULL", "('x','y')", "LIKE", "*", "/* c */", "-- c\n", "007", "!=", "é", ".",
)  # fmt: skip


class Grammar:
    """Expressions by the rules, and some that break one."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def logic(self, depth: int) -> str:
        chance = self._chance
        match chance.randrange(9) if depth > 0 else chance.randrange(5):
            case 0 | 1 | 2:
                return self.comparison()
            case 3:
                return self.predicate()
            case 4:
                return chance.choice([*NAMES, "TRUE", "FALSE", "NULL", f"NOT {chance.choice(NAMES)}"])
            case 5:
                return f"NOT ({self.logic(depth - 1)})"
            case 6:
                return (
                    f"({self.logic(depth - 1)}) {chance.choice(['IS NULL', 'IS NOT NULL', '= TRUE', '<> a'])}"
                )
            case _:
                word = chance.choice(["AND", "OR", "and", "or"])
                left, right = self.logic(depth - 1), self.logic(depth - 1)
                return chance.choice([f"{left} {word} {right}", f"({left}) {word} ({right})"])

    def comparison(self) -> str:
        chance = self._chance
        sign = chance.choice(["=", "<>", "<", "<=", ">", ">="])
        return f"{self.operand()} {sign} {self.operand()}"

    def operand(self) -> str:
        chance = self._chance
        kinds = (NAMES, NAMES, NAMES, NUMBERS, NUMBERS, TEXTS, ("TRUE", "FALSE", "NULL"))
        one = chance.choice(chance.choice(kinds))
        return chance.choice(["", "", "", "", "-", "+", "- -"]) + one

    def predicate(self) -> str:
        chance = self._chance
        negated = chance.choice(["", "NOT "])
        left = chance.choice([*NAMES, *NAMES, *NAMES, "'ab'", "5", "(a = 'x')"])
        match chance.randrange(4):
            case 0:
                texts = ", ".join(chance.choice(TEXTS) for _ in range(chance.randint(1, 3)))
                return f"{left} {negated}IN ({texts})"
            case 1:
                return f"{self.operand()} {negated}BETWEEN {self.operand()} AND {self.operand()}"
            case 2:
                return f"{left} IS {negated}NULL"
            case _:
                word = chance.choice(["CONTAINS", "STARTSWITH", "ENDSWITH"])
                return f"{left} {negated}{word} {chance.choice(TEXTS)}"


def cases(count: int, seed: int) -> list[tuple[str, dict[str, str]]]:
    chance = random.Random(seed)
    grammar = Grammar(chance)
    found = []
    for number in range(count):
        if number % 2:
            expression = " ".join(chance.choice(WORDS) for _ in range(chance.randint(1, 9)))
        else:
            expression = grammar.logic(3)
        names = chance.sample(NAMES, chance.randint(0, len(NAMES)))
        found.append((expression, {name: chance.choice(VALUES) for name in names}))
    return found


def evaluated(jars: Path, asked: list[tuple[str, dict[str, str]]]) -> list[str]:
    """Return Apache's result."""

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    lines = [
        "\t".join(encoded(part) for part in (expression, *(word for pair in values.items() for word in pair)))
        for expression, values in asked
    ]
    command = ["java", "-Xmx256m", "-cp", f"{jars / 'lib'}/*", str(SOURCE)]
    ran = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=True, timeout=600
    )
    return ran.stdout.split()


@pytest.mark.timeout(3_600)
def test_the_same_messages_match_as_at_apaches_broker(originals: Callable[[str], Path]) -> None:
    jars = originals("apache")
    counts: Counter[str] = Counter()
    different: dict[str, list[str]] = {}
    for begin in range(0, CASES, BATCH):
        asked = cases(min(BATCH, CASES - begin), SEED + begin)
        theirs = evaluated(jars, asked)
        assert len(theirs) == len(asked)
        for (expression, values), their in zip(asked, theirs, strict=True):
            error = sql_error(expression, strict=False)
            our = "-" if error is not None else str(int(sql_matches(expression, values, strict=False)))
            counts[f"theirs {their}, ours {our}"] += 1
            if our != their:
                different.setdefault(f"theirs {their}, ours {our}", []).append(
                    f"{expression!r} of {values}: {error}"
                )
            elif our != "-" and sql_error(expression) is not None:
                counts["of these, text behind the expression that we refuse by default"] += 1
            elif our != "-":
                assert sql_matches(expression, values) == (our == "1"), expression
    print(f"\n{CASES} pairs, seed {SEED}: {dict(sorted(counts.items()))}")
    for kind, lines in different.items():
        print(kind, len(lines), *lines[:25], sep="\n  ")
    assert not different


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", ["java-5.5.0", "java-4.9.8", "go"])
def test_their_push_consumers_get_what_matches_from_our_broker(
    client_of: Callable[[str], InteropClient], cluster_of: Callable[[str], Cluster], name: str
) -> None:
    cluster, client = cluster_of("rmqpy"), client_of(name)
    assert isinstance(client, ProcessClient)
    topic = f"sql-{name.replace('.', '-')}"
    send_priced(cluster, topic)
    listener = client.listen(cluster.namesrv, topic, topic, sql=WANTED)
    try:
        received = listener.wait_for(len(MATCHING), WAIT_S)
    finally:
        listener.stop()
    assert sorted(one.body for one in received) == MATCHING


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kind", ["rmqpy", "apache"])
def test_our_consumers_get_what_matches_from_either_broker(
    cluster_of: Callable[[str], Cluster], kind: str
) -> None:
    cluster, topic = cluster_of(kind), "sql-ours"
    send_priced(cluster, topic)
    seen: list[bytes] = []
    consumer = rmqpy.PushConsumer(topic, cluster.namesrv, start_from="earliest")
    consumer.on(topic, rmqpy.sql(WANTED), lambda message: seen.append(message.body))
    with consumer:
        until(lambda: len(seen) >= len(MATCHING), WAIT_S)
    assert sorted(seen) == MATCHING
    pulled: list[bytes] = []
    with rmqpy.PullConsumer(f"{topic}-pull", cluster.namesrv, start_from="earliest") as pulling:
        pulling.assign(pulling.queues(topic), rmqpy.sql(WANTED))
        deadline = time.monotonic() + WAIT_S
        while len(pulled) < len(MATCHING):
            assert time.monotonic() < deadline, pulled
            pulled += [message.body for message in pulling.poll(0.2)]
    assert sorted(pulled) == MATCHING
    with rmqpy.Catalog(cluster.namesrv) as catalog:
        queues = catalog.queues(topic)
        catalog.check_filter(queues, rmqpy.sql(WANTED))
        with pytest.raises(errors.BrokerError, match="broker-a"):
            catalog.check_filter(queues, Sql("price >"))


def send_priced(cluster: Cluster, topic: str) -> None:
    wire.create_topic(cluster.namesrv, cluster.broker, topic, 4)
    with rmqpy.Producer(cluster.namesrv, send_timeout=30.0) as producer:
        for price in range(20):
            region = "EU" if price % 2 else "US"
            producer.send(topic, f"{price:02}", properties={"price": str(price), "region": region})
