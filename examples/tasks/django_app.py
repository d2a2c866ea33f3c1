"""Django's tasks in one file: a task for now, and a task for later.

Needs Django 6, `pip install rmqpy[django]`, and a broker: `rmqpy standalone`. In two terminals:

    python django_app.py rocketmq_worker
    python django_app.py
"""

import os
import sys
from datetime import timedelta

import django
from django.conf import settings

# Workers import the tasks by the name of this module.
sys.modules.setdefault("django_app", sys.modules[__name__])
settings.configure(
    INSTALLED_APPS=["rmqpy.contrib.django"],
    USE_TZ=True,
    TASKS={
        "default": {
            "BACKEND": "rmqpy.contrib.django.backend.RocketMQBackend",
            "OPTIONS": {"namesrv": os.environ.get("NAMESRV_ADDR"), "topic_prefix": "example-django-"},
        }
    },
)
django.setup()

from django.core.management import execute_from_command_line  # noqa: E402
from django.tasks import task  # noqa: E402
from django.utils import timezone  # noqa: E402


def greet_now(name: str) -> None:
    """Greet someone, in the worker."""
    print(f"Hello {name}", flush=True)


greet_now.__module__ = "django_app"
greet = task(greet_now)
greet_now = greet  # type: ignore[assignment]


if __name__ == "__main__":
    if len(sys.argv) > 1:
        execute_from_command_line(sys.argv)
    else:
        greet.enqueue("Ada")
        greet.using(run_after=timezone.now() + timedelta(seconds=1)).enqueue("Grace")
