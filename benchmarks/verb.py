"""One verb of a Python client in a process of its own: `python -m benchmarks.verb VERB ADDRESS TOPIC SECONDS`.

Prints messages each second, and this process's processor time for each message.
"""

import json
import sys

from benchmarks import client_load, peer_load

_VERBS = client_load.VERBS | peer_load.VERBS | {client_load.WAITING: client_load.waiting}


def main(verb: str, address: str, topic: str, seconds: str) -> None:
    """Run it and print its metrics."""
    print(json.dumps(_VERBS[verb](address, topic, float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
