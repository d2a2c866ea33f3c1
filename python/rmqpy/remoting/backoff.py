"""Backoff: the pause before a retry.

Every retry of a client or an administrator uses one of these. Pure but for randomness.
"""

import random
from typing import Final, NamedTuple


class Backoff(NamedTuple):
    """Pauses between attempts in seconds: each twice as long as the last, up to `longest_s`.

    Up to half of it is added at random, so that clients that failed together do not retry together.
    """

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """The pause after this many failures in a row, at least one."""
        # No pause needs more doublings than that.
        doubled = self.first_s * (1 << min(failures - 1, 32))
        return min(doubled, self.longest_s) * random.uniform(1.0, 1.5)


#: After a broker reports that it is busy, for sends and pulls.
BUSY: Final = Backoff(0.05, 3.0)
#: After other failures, and for lookups until they succeed.
FAILING: Final = Backoff(1.0, 10.0)
