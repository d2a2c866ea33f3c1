"""Task backend: a queue of Django is a topic, and `run_after` is the due time of a message.

::

    INSTALLED_APPS = [..., "rmqpy.contrib.django"]
    TASKS = {
        "default": {
            "BACKEND": "rmqpy.contrib.django.backend.RocketMQBackend",
            "OPTIONS": {"namesrv": "127.0.0.1:9876"},
        }
    }

Results are not kept: signals report them. The client is created at its first use, by the process that uses it.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exception
from typing import Any

from django.tasks.backends.base import BaseTaskBackend
from django.tasks.base import Task, TaskContext, TaskError, TaskResult, TaskResultStatus
from django.tasks.signals import task_enqueued, task_finished, task_started
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.utils.json import normalize_json
from django.utils.module_loading import import_string

from rmqpy import errors
from rmqpy.admin.client import Admin
from rmqpy.client.producer.producer import Producer
from rmqpy.config.client import ClientConfig, Credentials

log = logging.getLogger(__name__)


class RocketMQBackend(BaseTaskBackend):
    """Sends tasks, and runs received ones for the worker. `OPTIONS` has `namesrv`, `namespace`, `access_key`,
    `secret_key`, `tls`, `topic_prefix`, `group` and `visibility_timeout`, all of them optional."""

    supports_defer = True
    supports_async_task = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        super().__init__(alias, params)
        options = self.options
        environment = ClientConfig.of(options.get("namesrv"))
        self.config = ClientConfig(
            namesrv=environment.namesrv,
            namespace=options.get("namespace", ""),
            credentials=Credentials.of(options.get("access_key"), options.get("secret_key"))
            or environment.credentials,
            tls=options.get("tls", environment.tls),
        )
        self.group: str = options.get("group", "django")
        self.visibility_timeout = float(options.get("visibility_timeout", 30.0))
        self._prefix: str = options.get("topic_prefix", "django-")
        self._worker = get_random_string(32)
        self._producer: tuple[int, Producer] | None = None
        self._topics: set[str] = set()

    def topic(self, queue_name: str) -> str:
        """Return the topic of a queue, which is created unless it exists."""
        topic = self._prefix + queue_name.replace(".", "%2E")
        if topic not in self._topics:
            # Users without the permission to create topics rely on existing ones.
            with Admin(self.config) as admin, suppress(errors.AuthError):
                admin.create_topic(topic, exist_ok=True)
            self._topics.add(topic)
        return topic

    def enqueue(self, task: Task, args: Any, kwargs: Any) -> TaskResult:
        """Send a task."""
        self.validate_task(task)
        result = TaskResult(
            task=task,
            id=get_random_string(32),
            status=TaskResultStatus.READY,
            enqueued_at=timezone.now(),
            started_at=None,
            last_attempted_at=None,
            finished_at=None,
            args=list(args),
            kwargs=dict(kwargs),
            backend=self.alias,
            errors=[],
            worker_ids=[],
        )
        body = {
            "id": result.id,
            "task": task.module_path,
            "args": normalize_json(result.args),
            "kwargs": normalize_json(result.kwargs),
            "queue": task.queue_name,
            "enqueued_at": timezone.now().isoformat(),
        }
        fields: dict[str, Any] = {} if task.run_after is None else {"deliver_at": task.run_after}
        self._sender().send(
            self.topic(task.queue_name), json.dumps(body), keys=result.id, tag=task.name, **fields
        )
        task_enqueued.send(type(self), task_result=result)
        return result

    def run(self, body: bytes, attempt: int) -> None:
        """Run a received task. Its exceptions are logged, and the signal `task_finished` reports them. Raises
        `ValueError` for a message that is not a task."""
        try:
            given = json.loads(body)
            task = import_string(given["task"])
            arguments, keywords = given["args"], given["kwargs"]
        except (ValueError, KeyError, TypeError, ImportError) as error:
            raise ValueError(f"not a task of this project: {error}") from error
        began = timezone.now()
        result = TaskResult(
            task=task,
            id=given["id"],
            status=TaskResultStatus.RUNNING,
            enqueued_at=None,
            started_at=began,
            last_attempted_at=began,
            finished_at=None,
            args=arguments,
            kwargs=keywords,
            backend=self.alias,
            errors=[],
            # Django counts attempts by their workers.
            worker_ids=[self._worker] * attempt,
        )
        task_started.send(type(self), task_result=result)
        call: Callable[..., Any] = task.call
        try:
            context = [TaskContext(task_result=result)] if task.takes_context else []
            value = normalize_json(call(*context, *arguments, **keywords))
            status = TaskResultStatus.SUCCESSFUL
            object.__setattr__(result, "_return_value", value)
        except Exception as error:
            log.exception("task %s failed", given["task"])
            kind = type(error)
            result.errors.append(
                TaskError(
                    exception_class_path=f"{kind.__module__}.{kind.__qualname__}",
                    traceback="".join(format_exception(error)),
                )
            )
            status = TaskResultStatus.FAILED
        object.__setattr__(result, "status", status)
        object.__setattr__(result, "finished_at", timezone.now())
        task_finished.send(type(self), task_result=result)

    def _sender(self) -> Producer:
        if self._producer is None or self._producer[0] != os.getpid():
            self._producer = (os.getpid(), Producer(self.config))
        return self._producer[1]
