"""Metrics of the tiered storage. Pure; any thread."""

from __future__ import annotations

from collections.abc import Iterator

from rmqpy.control.tiered.storage import TieredStorage
from rmqpy.monitor.exposition import Family


def families(tier: TieredStorage | None) -> Iterator[Family]:
    """The metrics of a tiered storage; none without one."""
    if tier is None:
        return
    files, copies, blocks = tier.files, tier.copies, tier.blocks
    for name, text, gauge in (
        ("files", "Files of the log in the tiered storage.", len(files)),
        ("bytes", "Bytes of these files.", sum(file.size for file in files)),
        ("behind_bytes", "Bytes of the log that are not copied to it.", copies.behind_bytes()),
        (
            "is_failing",
            "1 while the tiered storage cannot be written or listed.",
            int(copies.fault is not None),
        ),
    ):
        yield Family(f"rmqpy_tiered_{name}", "gauge", text, [({}, gauge)])
    for name, text, count in (
        ("copied_files", "Files copied to the tiered storage.", copies.counts.files),
        ("copied_bytes", "Bytes copied to it.", copies.counts.bytes),
        ("deleted_files", "Expired files deleted there.", copies.counts.deleted),
        ("failures", "Failed rounds of copying.", copies.counts.failures),
        ("cache_hits", "Reads of parts that were in memory.", blocks.hits),
        ("cache_misses", "Reads of parts that were fetched.", blocks.misses),
    ):
        yield Family(f"rmqpy_tiered_{name}_total", "counter", text, [({}, count)])
