"""Throughput of messages handed to a program that does nothing: `empty_handler.py NAMESRV GROUP TOPIC COUNT push|poll`.

Prints seconds from the first message to the last, and the CPU seconds of the whole process.
"""

import sys
import threading
import time

import rmqpy


def push(namesrv: str, group: str, topic: str, count: int) -> float:
    began = 0.0
    seen = 0
    done = threading.Event()
    consumer = rmqpy.PushConsumer(group, namesrv, start_from="earliest")
    lock = threading.Lock()

    @consumer.on(topic)
    def handle(message: rmqpy.ReceivedMessage) -> None:
        nonlocal began, seen
        with lock:
            began = began or time.perf_counter()
            seen += 1
            if seen == count:
                done.set()

    with consumer:
        done.wait()
        return time.perf_counter() - began


def poll(namesrv: str, group: str, topic: str, count: int) -> float:
    began = 0.0
    seen = 0
    with rmqpy.PullConsumer(group, namesrv, start_from="earliest") as consumer:
        consumer.assign(consumer.queues(topic))
        while seen < count:
            for _ in consumer.poll():
                began = began or time.perf_counter()
                seen += 1
        return time.perf_counter() - began


if __name__ == "__main__":
    way = {"push": push, "poll": poll}[sys.argv[5]]
    seconds = way(*sys.argv[1:4], int(sys.argv[4]))
    print(seconds, time.process_time())
