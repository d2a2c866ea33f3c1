"""What all tests share: how hypothesis runs."""

from hypothesis import settings

# Machines that run tests are shared: a slow example says nothing about the code. What a hang is, pytest-timeout knows.
settings.register_profile("rmqpy", deadline=None)
settings.load_profile("rmqpy")
