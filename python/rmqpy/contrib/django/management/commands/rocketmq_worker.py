"""`manage.py rocketmq_worker`: runs tasks until SIGTERM or Ctrl-C; start as many as needed."""

from __future__ import annotations

import signal
import sys
from contextlib import suppress
from typing import Any, Final

from django.core.management.base import BaseCommand, CommandParser
from django.db import close_old_connections
from django.tasks import DEFAULT_TASK_BACKEND_ALIAS, task_backends

from rmqpy import errors
from rmqpy.client.simple.consumer import SimpleConsumer
from rmqpy.contrib.django.backend import RocketMQBackend
from rmqpy.contrib.work import EXTEND_S

#: Seconds that a receive waits for a task.
WAIT_S: Final = 1.0


class Command(BaseCommand):
    """Runs the tasks of a backend, one at a time."""

    help = "Run the tasks of a RocketMQ backend, one at a time."

    def add_arguments(self, parser: CommandParser) -> None:
        """Add the options."""
        parser.add_argument("--backend", default=DEFAULT_TASK_BACKEND_ALIAS, help="alias in TASKS")
        parser.add_argument(
            "--queues", default="", help="queues separated by commas; default: all of the backend"
        )

    def handle(self, *_: Any, **options: Any) -> None:
        """Run tasks. A task is acknowledged when it has ended, so that another worker runs those of a dead one."""
        backend = task_backends[options["backend"]]
        assert isinstance(backend, RocketMQBackend), f"{options['backend']} is not a RocketMQ backend"
        signal.signal(signal.SIGTERM, lambda *_: setattr(self, "is_stopping", True))
        self.is_stopping = False
        queues = sorted(filter(None, options["queues"].split(","))) or sorted(backend.queues)
        with (
            SimpleConsumer(
                backend.group, backend.config, start_from="earliest", auto_extend=EXTEND_S
            ) as consumer,
            suppress(KeyboardInterrupt),
        ):
            for queue in queues:
                consumer.subscribe(backend.topic(queue))
            self.stdout.write(f"ready: {', '.join(queues)}")
            self.stdout.flush()
            while not self.is_stopping:
                try:
                    received = consumer.receive(1, invisible=backend.visibility_timeout, wait=WAIT_S)
                except errors.RocketMQError as error:
                    print(f"cannot receive tasks: {error}", file=sys.stderr)
                    continue
                for message in received:
                    close_old_connections()
                    try:
                        backend.run(message.body, message.delivery_attempt)
                    except ValueError as error:
                        print(f"{message.message_id} becomes a dead letter: {error}", file=sys.stderr)
                        consumer.dead_letter(message)
                    else:
                        consumer.ack(message)
                    close_old_connections()
