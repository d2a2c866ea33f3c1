"""Decisions of Apache's own authorizer, in one JVM, and of ours, about the same policies and requests.

Goal: they differ nowhere, also where an Allow and a Deny on one resource speak of a request. Method: DECISION_POLICIES
(100) random policies, DECISION_REQUESTS (1,000) requests about each; DECISION_SEED for others. Every fourth policy has
two entries on a resource, which no administration of either makes.
"""

import os
import random
import subprocess
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_address, ip_network
from pathlib import Path

import pytest

from rmqpy._native import decide

POLICIES = int(os.environ.get("DECISION_POLICIES") or 100)
REQUESTS = int(os.environ.get("DECISION_REQUESTS") or 1_000)
SEED = int(os.environ.get("DECISION_SEED") or 14)
SOURCE = Path(__file__).with_name("java") / "Decisions.java"

KINDS = ("Topic", "Group", "Cluster")
NAMES = ("a", "ab", "abc", "abcd", "b", "ba", "orders", "%SYS%a", "订单")
PATTERNS = ("*", "a*", "ab*", "abc*", "b*", "o*", "订*", *NAMES)
ACTIONS = ("Pub", "Sub", "Create", "Update", "Delete", "Get", "List")
SOURCES = ("10.0.0.7", "10.0.0.0/8", "10.0.0.0/30", "192.168.1.0/24", "127.0.0.1")
ADDRESSES = ("10.0.0.7", "10.0.0.2", "10.9.9.9", "192.168.1.77", "192.168.2.1", "127.0.0.1")

#: Type, resource, actions, addresses, decision.
Entry = tuple[str, str, list[str], list[str], str]
#: Kind, name, actions, address.
Asked = tuple[str, str, list[str], str]


def random_policy(chance: random.Random, *, has_twins: bool) -> list[Entry]:
    found: list[Entry] = []
    for _ in range(chance.randint(1, 12)):
        kind = chance.choice(("Custom", "Custom", "Default"))
        resource = chance.choice([*[f"{each}:{chance.choice(PATTERNS)}" for each in KINDS], "*"])
        if not has_twins and any(each[:2] == (kind, resource) for each in found):
            continue
        actions = chance.choice([["All"], chance.sample(ACTIONS, chance.randint(1, 4))])
        sources = chance.choice([[], [], chance.sample(SOURCES, chance.randint(1, 2))])
        found.append((kind, resource, actions, sources, chance.choice(["Allow", "Allow", "Deny"])))
    return found


def random_request(chance: random.Random) -> Asked:
    actions = chance.sample(ACTIONS, chance.choice([1, 1, 2, 3]))
    return chance.choice(KINDS), chance.choice(NAMES), actions, chance.choice(ADDRESSES)


def is_contradiction(policy: list[Entry], asked: Asked) -> bool:
    """Return whether an Allow and a Deny on one resource both match the request."""
    _, _, needed, source = asked
    speaking = [
        (kind, resource, decision)
        for kind, resource, actions, sources, decision in policy
        if ("All" in actions or set(actions) & set(needed))
        and (not sources or any(ip_address(source) in ip_network(each) for each in sources))
    ]
    both = {each[:2] for each in speaking if each[2] == "Allow"}
    return any(each[:2] in both for each in speaking if each[2] == "Deny")


def evaluated(jars: Path, asked: list[tuple[list[Entry], list[Asked]]]) -> list[str]:
    """Return Apache's decision."""
    lines = []
    for policy, requests in asked:
        lines.append("new")
        for kind, resource, actions, sources, decision in policy:
            lines.append("\t".join(["entry", kind, resource, ",".join(actions), ",".join(sources), decision]))
        for kind, name, actions, source in requests:
            lines.append("\t".join(["ask", f"{kind}:{name}", ",".join(actions), source]))
    command = ["java", "-Xmx256m", "-cp", f"{jars / 'lib'}/*", str(SOURCE)]
    ran = subprocess.run(
        command, input="\n".join(lines) + "\n", capture_output=True, text=True, check=False, timeout=600
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return ran.stdout.split()


@pytest.mark.timeout(900)
def test_apaches_authorizer_and_ours_decide_alike(originals: Callable[[str], Path]) -> None:
    chance = random.Random(SEED)
    asked = []
    for number in range(POLICIES):
        policy = random_policy(chance, has_twins=number % 4 == 0)
        asked.append((policy, [random_request(chance) for _ in range(REQUESTS)]))
    theirs = iter(evaluated(originals("apache"), asked))
    counts: Counter[str] = Counter()
    different = []
    for policy, requests in asked:
        rows = {kind: [each[1:] for each in policy if each[0] == kind] for kind in ("Custom", "Default")}
        known: dict[tuple[object, ...], bool] = {}
        for kind, name, actions, source in requests:
            need = (kind, name, tuple(actions), source)
            if need not in known:
                known[need] = decide(rows["Custom"], rows["Default"], (kind, name, actions), source)[0]
            our, their = known[need], next(theirs) == "1"
            counts[f"theirs {their}, ours {our}"] += 1
            counts["an Allow and a Deny on one resource speak of it"] += is_contradiction(
                policy, (kind, name, actions, source)
            )
            if our != their:
                different.append((policy, need, our, their))
    print(f"\n{POLICIES} policies, {REQUESTS} requests each, seed {SEED}: {dict(sorted(counts.items()))}")
    assert not different, (len(different), different[:3])
    assert counts["theirs True, ours True"] > POLICIES * REQUESTS / 20
    assert counts["theirs False, ours False"] > POLICIES * REQUESTS / 20
