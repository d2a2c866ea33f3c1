"""Commands run in the process of a test, as a user would type them."""

from collections.abc import Callable

import pytest

from rmqpy import cli

#: Arguments to exit code, stdout and stderr.
Run = Callable[..., tuple[int, str, str]]


def runner(
    namesrv: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], *prefix: str
) -> Run:
    """`run("topic", "list")` with the name servers in the environment, the words of `prefix` put before."""
    monkeypatch.setenv("NAMESRV_ADDR", namesrv)

    def run(*arguments: str) -> tuple[int, str, str]:
        code = cli.run([*prefix, *arguments])
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return run
