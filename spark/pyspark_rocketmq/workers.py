"""Worker processes: keep Python's collector cheap.

Spark runs the collector in a worker after every task and every step of planning. It visits some 50,000 objects of
imported modules, 20 to 40 ms of processor time, and a micro-batch has several such processes.
"""

import gc

_is_frozen = False


def exclude_imports() -> None:
    """Exclude the objects that exist now, nearly all of them modules, from collections in this process. Does so once,
    so that later garbage is still collected. Call it when a worker has imported what it needs."""
    global _is_frozen
    if not _is_frozen:
        _is_frozen = True
        gc.freeze()
