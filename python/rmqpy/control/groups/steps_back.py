"""Steps back: groups that committed an offset below the one before, from the data plane to the server log.

A member that seeks does it on purpose. One that nobody sent back, or two that commit in turns, are worth a line: what
was finished is delivered again. Threads: the event loop's; every second.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqpy._native import Offsets

#: Seconds between two looks. The data plane keeps at most one for each group.
STEPS_BACK_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def log_steps_back(offsets: Offsets) -> None:
    """Write down the first step back of each group, once; metrics count them all."""
    for group, topic, queue_id, before, after in offsets.take_first_steps_back():
        log.info(
            "group %s went back in queue %d of %s, from %d to %d: later ones are only counted",
            group,
            queue_id,
            topic,
            before,
            after,
        )
