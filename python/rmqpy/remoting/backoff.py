"""Backoff: the pause before anything is asked again.

Whatever a client or an administrator repeats, it repeats with one of these. Pure but for chance.
"""

import random
from typing import Final, NamedTuple


class Backoff(NamedTuple):
    """Pauses between attempts, in seconds: each twice as long as the one before, up to `longest_s`.

    Up to half of it is added by chance, so that clients that failed together do not come back together.
    """

    first_s: float
    longest_s: float

    def pause_s(self, failures: int) -> float:
        """The pause after so many failures in a row, of which there is at least one."""
        # No pause needs more doublings than that.
        doubled = self.first_s * (1 << min(failures - 1, 32))
        return min(doubled, self.longest_s) * random.uniform(1.0, 1.5)


#: For a broker that says it is busy, sends and pulls alike.
BUSY: Final = Backoff(0.05, 3.0)
#: For what failed in another way, and for what is looked for until it is there.
FAILING: Final = Backoff(1.0, 10.0)
