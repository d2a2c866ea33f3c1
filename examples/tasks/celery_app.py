"""Celery: a task that is retried, a scheduled one, and a chain, with their times kept by the broker.

Needs `pip install rmqpy[celery]` and a broker: `rmqpy standalone`. In two terminals:

    celery -A celery_app worker
    python celery_app.py
"""

import os

from celery import Celery, chain

app = Celery(
    "celery_app", broker=f"rocketmq://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}", backend="rpc://"
)
app.conf.update(
    # A task of a killed worker runs elsewhere.
    task_acks_late=True,
    task_default_queue="example-celery",
)


@app.task
def price(quantity: int) -> float:
    """Return the price of an order."""
    return quantity * 2.5


@app.task(bind=True, max_retries=3)
def charge(self, amount: float) -> str:  # type: ignore[no-untyped-def]
    """Charge a card; the first attempt fails, and the broker keeps the time of the second."""
    if self.request.retries == 0:
        raise self.retry(countdown=0.5)
    return f"charged {amount:g}"


if __name__ == "__main__":
    print(chain(price.s(4), charge.s())().get(timeout=30))
    print(price.apply_async((2,), countdown=1).get(timeout=30))
