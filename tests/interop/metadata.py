"""Configuration files of a broker: written by Apache's broker, extended with unknown members, and compared.

Owns the added members. No broker may have the folder open while files are read or written here.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from rmqpy.protocol import fastjson

from . import wire
from .clients import ProcessClient
from .folders import Folder

TOPIC = "kept-topic"
GROUP = "kept-group"
STATIC_TOPIC = "kept-static"

#: Tables that rmqpy rewrites after `change`; it leaves everything else alone.
SERVED = ("topics.json", "subscriptionGroup.json", "consumerOffset.json")

#: Values that Apache's broker recomputes and writes next to its offsets.
DERIVED = "groupTopicMap"

_GET_TOPIC_CONFIG = 351
_GET_GROUP_CONFIG = 352

#: Members of no known release, by file and the path to their object.
_TO_COME: dict[str, tuple[tuple[str, ...], ...]] = {
    "topics.json": ((), ("topicConfigTable", TOPIC)),
    "subscriptionGroup.json": (
        (),
        ("subscriptionGroupTable", GROUP),
        ("subscriptionGroupTable", GROUP, "groupRetryPolicy"),
    ),
    "consumerOffset.json": ((),),
}
_NEWS = {"aRelease": "of tomorrow", "numbers": [1, 2]}


def fill(folder: Folder, admin: ProcessClient) -> None:
    """Have the broker that serves the folder write every kind of file that a tool can cause."""
    for line in (
        f"updateTopic -b {folder.broker} -t {TOPIC} -r 3 -w 2 -a +message.type=FIFO",
        f"updateSubGroup -b {folder.broker} -g {GROUP} -r 3",
        f"setConsumeMode -b {folder.broker} -t {TOPIC} -g {GROUP} -m POP -q 2",
        f"updateStaticTopic -b broker-a -t {STATIC_TOPIC} -qn 2",
    ):
        command, *options = line.split()
        admin.mqadmin(command, "-n", folder.namesrv, *options)
    wire.commit(folder.broker, GROUP, TOPIC, 1, 0)


def add_members(folder: Folder) -> None:
    """Add members of a future release to the files."""
    for name, places in _TO_COME.items():
        file = folder.home / "store" / "config" / name
        tree = fastjson.loads(file.read_text("utf-8"))
        for place in places:
            inner = tree
            for step in place:
                inner = inner[step]
            inner |= _NEWS
        file.write_text(fastjson.pretty(tree), encoding="utf-8")


def contents(folder: Folder) -> dict[str, bytes]:
    """Return every file, except backups."""
    config = folder.home / "store" / "config"
    return {
        file.name: file.read_bytes()
        for file in sorted(config.iterdir())
        if file.is_file() and file.suffix != ".bak"
    }


def change(folder: Folder, admin: ProcessClient) -> None:
    """Have the broker that serves the folder write all files of ours."""
    wire.create_topic(folder.namesrv, folder.broker, f"{TOPIC}-other", queues=1)
    admin.mqadmin("updateSubGroup", "-n", folder.namesrv, "-b", folder.broker, "-g", f"{GROUP}-other")
    wire.commit(folder.broker, f"{GROUP}-other", f"{TOPIC}-other", 0, 0)


def check(before: Mapping[str, bytes], after: Mapping[str, bytes]) -> None:
    """Check that rewritten files still have everything, and the rest is as it was."""
    assert before.keys() <= after.keys()
    for name, content in before.items():
        if name not in SERVED:
            assert after[name] == content, name
            continue
        was, now = fastjson.loads(content), fastjson.loads(after[name])
        assert now.pop("dataVersion")["counter"] > was.pop("dataVersion")["counter"], (
            f"{name} was not written anew"
        )
        was.pop(DERIVED, None)
        assert not (gone := lost(was, now)), f"{name} has lost {gone}"


def described(folder: Folder) -> dict[str, Any]:
    """Topic and group, as the broker that serves the folder describes them."""
    _, topic = wire.request(folder.broker, _GET_TOPIC_CONFIG, {"topic": TOPIC})
    _, group = wire.request(folder.broker, _GET_GROUP_CONFIG, {"group": GROUP})
    return {"topic": fastjson.loads(topic), "group": fastjson.loads(group)}


def lost(before: Any, after: Any) -> list[str]:
    """Places where the second tree lacks a value of the first, or has another."""
    return list(_lost(before, after, ""))


def _lost(before: Any, after: Any, place: str) -> Iterator[str]:
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name not in after:
                yield f"{place}.{name}"
            else:
                yield from _lost(value, after[name], f"{place}.{name}")
    elif before != after:
        yield f"{place}: {before!r} is {after!r}"
