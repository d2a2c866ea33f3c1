"""Verb process: runs one verb of a Python client (`python -m benchmarks.verb VERB ADDRESS TOPIC SECONDS`).

Prints messages per second, and this process's processor time per message.
"""

import json
import sys

from benchmarks import client_load, other_clients

_VERBS = client_load.VERBS | other_clients.VERBS | {client_load.WAITING: client_load.waiting}


def main(verb: str, address: str, topic: str, seconds: str) -> None:
    """Run it and print its metrics."""
    print(json.dumps(_VERBS[verb](address, topic, float(seconds))))


if __name__ == "__main__":
    main(*sys.argv[1:])
