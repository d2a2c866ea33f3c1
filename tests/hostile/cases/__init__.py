"""Attacks on a whole broker and its name server, as tables: one file for each kind.

`BYTES` are the lines of `tests/vectors/hostile.txt`: no frames, or frames nobody could want. `REQUESTS` are well-formed
frames with contents a client may send. Each row says how it must end: the code it is answered with, after which the
connection goes on, or

=========  =====================================================================
closed     the connection is closed, nothing was answered
answered   answered, whatever the code, and the connection goes on
ignored    nothing comes, and the connection goes on
hangs up   the connection is closed; what was right before may have been answered
waits      nothing comes, and the server waits for more
=========  =====================================================================
"""

from hostile.cases.batches import batches, compressed
from hostile.cases.bodies import bodies, heartbeats, key_values
from hostile.cases.codes import codes
from hostile.cases.frames import in_binary, pipelined, written
from hostile.cases.names import names
from hostile.cases.numbers import numbers
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
