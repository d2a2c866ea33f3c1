"""Settings of all tests: hypothesis, and programs under test that can be interrupted."""

import signal

from hypothesis import settings

# A shell that runs the tests in the background has them ignore Ctrl-C, and every program they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Machines that run tests are shared: a slow example says nothing about the code. What a hang is, pytest-timeout knows.
settings.register_profile("rmqpy", deadline=None)
settings.load_profile("rmqpy")
