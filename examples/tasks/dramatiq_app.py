"""Dramatiq: actors with retries and delays that wait at the broker.

Needs `pip install rmqpy[dramatiq]` and a broker: `rmqpy standalone`. In two terminals:

    dramatiq dramatiq_app
    python dramatiq_app.py
"""

import os

import dramatiq

from rmqpy.contrib.dramatiq import RocketMQBroker

dramatiq.set_broker(RocketMQBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")))


@dramatiq.actor(queue_name="example-dramatiq", max_retries=3)
def greet(name: str) -> None:
    """Greet someone, in the worker."""
    print(f"Hello {name}", flush=True)


if __name__ == "__main__":
    greet.send("Ada")
    greet.send_with_options(args=("Grace",), delay=1_000)
    dramatiq.get_broker().close()
