"""Attacks on a whole broker and its name server, as tables: one file for each kind.

`BYTES` are the lines of `tests/vectors/hostile.txt`: invalid or useless frames. `REQUESTS` are well-formed
frames with contents a client may send. Each row has the expected end: the response code, after which the
connection continues, or

=========  =====================================================================
closed     the connection is closed without a reply
answered   answered with any code, and the connection continues
ignored    no reply, and the connection continues
hangs up   the connection is closed; earlier valid requests may have been answered
waits      no reply, and the server waits for more
=========  =====================================================================
"""

from hostile.cases.batches import batches, compressed
from hostile.cases.bodies import bodies, heartbeats, key_values
from hostile.cases.codes import codes
from hostile.cases.frames import in_binary, pipelined, written
from hostile.cases.names import names
from hostile.cases.numbers import numbers
from hostile.cases.pops import acks, pops
from hostile.cases.queues import commits, pulls, queries
from hostile.cases.registrations import registrations, routes
from hostile.cases.sends import sends
from hostile.cases.settings import settings

BYTES = tuple(written())
REQUESTS = (
    *names(),
    *numbers(),
    *sends(),
    *batches(),
    *compressed(),
    *pulls(),
    *commits(),
    *queries(),
    *pops(),
    *acks(),
    *bodies(),
    *heartbeats(),
    *key_values(),
    *settings(),
    *registrations(),
    *routes(),
    *codes(),
    *pipelined(),
    *in_binary([*sends(), *pulls(), *commits(), *queries()]),
)
