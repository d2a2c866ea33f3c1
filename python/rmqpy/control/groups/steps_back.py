"""Steps back: logs groups that committed an offset below the previous one.

A seek does this on purpose. Otherwise, two members may commit in turns, and finished messages are delivered again.
Threads: the event loop's; every second.
"""

from __future__ import annotations

import logging
from typing import Final

from rmqpy._native import Offsets

#: The interval of the checks. The data plane keeps at most one step for each group.
STEPS_BACK_SECONDS: Final = 1.0

log = logging.getLogger(__name__)


def log_steps_back(offsets: Offsets) -> None:
    """Log the first step back of each group, once; metrics count all of them."""
    for step in offsets.take_first_steps_back():
        log.info(
            "group %s went back in queue %d of %s, from %d to %d: later ones are only counted",
            step.group,
            step.queue_id,
            step.topic,
            step.before,
            step.after,
        )
