"""Files that Apache's broker leaves in the folder and this one has no use for.

They stay as they are, for the day the folder goes back. What clients would notice meanwhile is logged. Blocks; for
the start of the broker.
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
    """Their queues are numbered across brokers; here they are numbered like those of any other topic."""
    try:
        topics = sorted(
            read_json(_Mappings, (folder / _STATIC_TOPICS).read_text("utf-8")).topic_queue_mapping_info_map
        )
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        log.warning("%s is left alone, and could not be read: %s", folder / _STATIC_TOPICS, error)
        return
    if topics:
        shown = ", ".join(topics[:_NAMES_SHOWN_MAX]) + (", …" if len(topics) > _NAMES_SHOWN_MAX else "")
        log.warning(
            "static topics are not served yet, these have queue numbers and offsets of this broker: %s", shown
        )
