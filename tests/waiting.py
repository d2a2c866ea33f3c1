"""Waits of all tests."""

from benchmarks.waiting import WAIT_S, anything, moment_after_now, until, until_async

__all__ = ["WAIT_S", "anything", "moment_after_now", "until", "until_async"]
