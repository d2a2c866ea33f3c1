"""Existing topics of a stopped broker, from its file. Blocks on the disk."""

from __future__ import annotations

from pathlib import Path

from rmqpy.protocol import fastjson


def existing_topics(root: Path) -> list[str] | None:
    """Return the topics of the store at `root`; `None` without a file of them. Unlike a broker this leaves a damaged
    file in place."""
    for name in ("topics.json", "topics.json.bak"):
        try:
            table = fastjson.loads((root / "config" / name).read_text(encoding="utf-8"))
            return list(table["topicConfigTable"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return None
