"""Static topics: files of Apache's broker that this broker does not use.

The files stay unchanged, in case the folder returns to Apache's broker; effects that clients would notice are logged.
Blocks; for the start of the broker.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

from rmqpy.protocol.declare import read_json, record

log = logging.getLogger(__name__)

_STATIC_TOPICS: Final = "topicQueueMapping.json"
_NAMES_SHOWN_MAX: Final = 10


@record
class _Mappings:
    topic_queue_mapping_info_map: dict[str, object]


def warn_of_static_topics(folder: Path) -> None:
    """Log topics whose queues are numbered across brokers; here they are ordinary topics."""
    try:
        topics = sorted(
            read_json(_Mappings, (folder / _STATIC_TOPICS).read_text("utf-8")).topic_queue_mapping_info_map
        )
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("cannot read %s, leaving it unchanged: %s", folder / _STATIC_TOPICS, error)
        return
    if topics:
        shown = ", ".join(topics[:_NAMES_SHOWN_MAX]) + (", …" if len(topics) > _NAMES_SHOWN_MAX else "")
        log.warning(
            "static topics are not served yet; these use queue ids and offsets of this broker: %s", shown
        )
