"""Settings of the project."""

import os

SECRET_KEY = "not secret"
USE_TZ = True
TIME_ZONE = "UTC"
INSTALLED_APPS = ["rmqpy.contrib.django"]
DATABASES: dict[str, object] = {}
TASKS = {
    "default": {
        "BACKEND": "rmqpy.contrib.django.backend.RocketMQBackend",
        "QUEUES": ["default", "mail"],
        "OPTIONS": {"namesrv": os.environ.get("NAMESRV_ADDR")},
    }
}
