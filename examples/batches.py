"""Batches: sends a sensor's readings a hundred at a time, in one request that is stored as a whole or not at all.

    python examples/batches.py

Bulk is fast because one request replaces a hundred. All messages of a batch belong to one topic and go to one queue,
at consecutive offsets; none of them may be delayed or part of a transaction. Consumers see single messages.
"""

import rmqpy
from rmqpy import testing

READINGS = 1_000
TOGETHER = 100


def main() -> None:
    with testing.broker() as server:
        with rmqpy.Producer(server.namesrv) as station:
            for first in range(0, READINGS, TOGETHER):
                batch = [
                    rmqpy.Message("readings", f"{20 + number % 7} °C", keys=f"reading-{number}")
                    for number in range(first, first + TOGETHER)
                ]
                stored = station.send_batch(batch)
            print(
                f"the last batch: offsets {stored[0].queue_offset} to {stored[-1].queue_offset} of {stored[0].queue}"
            )
            # Single messages are batched automatically: `submit` returns immediately, and requests are filled as they
            # leave.
            single = [station.submit("readings", "20 °C", keys=f"extra-{number}") for number in range(10)]
            print(f"{len([each.result() for each in single])} more were stored")
        with rmqpy.PullConsumer("archive", server.namesrv, start_from="earliest") as archive:
            archive.subscribe("readings")
            keys: list[str] = []
            while len(keys) < READINGS + len(single):
                keys += [key for message in archive.poll(timeout=5) for key in message.keys]
    assert set(keys) >= {f"reading-{number}" for number in range(READINGS)}
    print(f"{len(keys)} were archived")


if __name__ == "__main__":
    main()
