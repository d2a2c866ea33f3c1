"""Log collection: a `logging.Handler` that sends records without ever blocking the program.

    python examples/log_collection.py

Records go into a queue of fixed size; a thread sends them. While the broker is slow or down the queue fills, and
further records are counted and dropped: a program must not stop because its logs cannot be sent.
"""

import json
import logging
import queue
import threading

import rmqpy
from rmqpy import testing


class TopicHandler(logging.Handler):
    """Sends each record as a JSON object; its level is the tag, its logger the key."""

    def __init__(self, topic: str, namesrv: str, *, records_max: int = 10_000) -> None:
        super().__init__()
        #: Records that did not fit.
        self.dropped = 0
        self._topic = topic
        self._records: queue.Queue[rmqpy.Message | None] = queue.Queue(records_max)
        self._producer = rmqpy.Producer(namesrv)
        self._thread = threading.Thread(target=self._send, name="log-sender", daemon=True)
        self._thread.start()
        # Records of the client itself would be sent, and logged again, endlessly.
        self.addFilter(lambda record: not record.name.startswith("rmqpy"))

    def emit(self, record: logging.LogRecord) -> None:
        body = {
            "at": record.created,
            "level": record.levelname,
            "logger": record.name,
            "text": self.format(record),
        }
        try:
            message = rmqpy.Message(self._topic, json.dumps(body), tag=record.levelname, keys=record.name)
            self._records.put_nowait(message)
        except queue.Full:
            self.dropped += 1

    def close(self) -> None:
        """Send the queued records, for some seconds at most."""
        try:
            self._records.put(None, timeout=5)
            self._thread.join(timeout=5)
        except queue.Full:
            self.dropped += self._records.qsize()
        self._producer.close()
        super().close()

    def _send(self) -> None:
        while (message := self._records.get()) is not None:
            try:
                self._producer.submit(message)
            except rmqpy.RocketMQError:
                self.dropped += 1


def main() -> None:
    with testing.broker() as server:
        handler = TopicHandler("logs", server.namesrv)
        logger = logging.getLogger("shop.checkout")
        logger.setLevel(logging.INFO)
        logger.addHandler(handler)
        for number in range(1, 101):
            logger.info("order %d accepted", number)
        logger.error("payment provider does not answer")
        logger.removeHandler(handler)
        handler.close()

        counts: dict[str, int] = {}
        with rmqpy.PullConsumer("collector", server.namesrv, start_from="earliest") as collector:
            collector.subscribe("logs")
            while sum(counts.values()) < 101:
                for message in collector.poll(timeout=5):
                    record = message.json()
                    counts[record["level"]] = counts.get(record["level"], 0) + 1
                    if message.tag == "ERROR":
                        print(f"{record['logger']}: {record['text']}")
        print(f"collected {counts}, dropped {handler.dropped}")


if __name__ == "__main__":
    main()
