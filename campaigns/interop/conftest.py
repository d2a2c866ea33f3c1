"""Fixtures of the interop tests, for campaigns with foreign clients."""

pytest_plugins = ["interop.conftest"]
