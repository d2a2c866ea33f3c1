"""Loading of plug-ins: only what is named, and a clear error for what cannot be loaded."""

import json
import sys
import threading
from pathlib import Path

import pytest

import rmqpy
from plugins.conftest import Install, metric
from plugins.installed import install
from rmqpy import cli
from rmqpy.errors import ConfigError
from rmqpy.testing import broker

GOOD = """
    from rmqpy.plugins import Observer

    class Probe(Observer):
        api_version = 1

        def open(self, context):
            self.context = context
            opened.append(context)

        def sent(self, messages):
            pass

    opened = []
"""


def test_nothing_is_loaded_or_runs_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = install(tmp_path, "unnamed", {"unnamed": "unnamed:Probe"}, "raise SystemExit('imported')")
    monkeypatch.syspath_prepend(folder)
    before = set(threading.enumerate())
    with broker(httpPort=0) as server, rmqpy.Producer(server.namesrv) as producer:
        producer.send("orders", b"one")
        assert metric(server, "calls_total", ".*") is None
        new = set(threading.enumerate()) - before
        assert not [each for each in new if each.name.startswith("plugin-")]
        assert not list(server.data_dir.rglob("plugins"))
    assert "unnamed" not in sys.modules


def test_a_named_plugin_is_opened_with_its_broker_folder_and_options(plugin: Install, tmp_path: Path) -> None:
    probes = plugin(GOOD, probe="Probe")
    options = tmp_path / "plugins.toml"
    options.write_text("[probe]\nlimit = 7\n")
    with broker(plugins="probe", pluginsFile=options, httpPort=0, brokerName="broker-a") as server:
        with rmqpy.Admin(server.namesrv) as admin:
            assert admin.broker_config("broker-a")["plugins"] == "probe"
        assert metric(server, "breaker") == 0
        [context] = probes.opened
        assert (context.name, context.broker, context.broker_id) == ("probe", "broker-a", 0)
        assert (dict(context.options), context.folder.is_dir()) == ({"limit": 7}, True)
        assert context.folder.is_relative_to(server.data_dir)


CLASSES = """
    from rmqpy.plugins import LogFollower, Observer, Plugin, Policy

    class NoVersion(Observer):
        def sent(self, messages): ...

    class Newer(Observer):
        api_version = 2
        def sent(self, messages): ...

    class Incomplete(LogFollower):
        api_version = 1

    class Both(Observer, LogFollower):
        api_version = 1
        def sent(self, messages): ...
        def keep(self, messages): ...

    class NoDefault(Policy):
        api_version = 1

    class Slow(Policy):
        api_version = 1
        on_failure = "allow"
        time_limit = 60

    class Careful(Policy):
        api_version = 1
        on_failure = "allow"
        time_limit = 2

    class Small(Observer):
        api_version = 1
        behind_bytes = 1
        def sent(self, messages): ...

    class OneTopic(Observer):
        api_version = 1
        topics = "orders"
        def sent(self, messages): ...

    class Failing(Observer):
        api_version = 1
        def __init__(self):
            raise OSError("no such host")
        def sent(self, messages): ...

    def function(): ...
"""


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("NoVersion", "does not set api_version, and this broker has version 1"),
        ("Newer", "needs version 2 of the plug-in interface, and this broker has version 1"),
        ("Incomplete", "does not define keep"),
        ("Both", "must derive from exactly one of"),
        ("NoDefault", "on_failure must be 'refuse' or 'allow'"),
        ("Slow", "time_limit=60: must be above 0, and at most 2 seconds"),
        ("Small", "behind_bytes=1: must be from 1048576"),
        ("OneTopic", "topics must be None, or a collection"),
        ("Failing", "OSError: no such host"),
        ("function", "is not a class derived from"),
        ("absent", "cannot be imported: AttributeError"),
    ],
)
def test_a_plugin_that_does_not_fit_fails_the_start(plugin: Install, kind: str, reason: str) -> None:
    plugin(CLASSES, probe=kind)
    with pytest.raises(ConfigError, match=f"plug-in probe of probes_.*{reason}"), broker(plugins="probe"):
        pass


def test_policies_that_take_longer_than_clients_wait_fail_the_start(plugin: Install) -> None:
    plugin(CLASSES, one="Careful", two="Careful")
    with (
        pytest.raises(ConfigError, match=r"time limits of the policies add up to 4 s"),
        broker(plugins="one,two"),
    ):
        pass


def test_an_unknown_name_fails_the_start_and_the_installed_ones_are_named(
    plugin: Install, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    plugin(GOOD, probe="Probe")
    code = cli.run(["broker", f"storePathRootDir={tmp_path / 'store'}", "listenPort=0", "plugins=prob"])
    error = capfd.readouterr().err
    assert code != 0
    assert "no installed distribution has a plug-in 'prob'; installed plug-ins: probe" in error
    assert not (tmp_path / "store" / "commitlog").exists()


def test_two_distributions_with_one_name_fail_the_start(plugin: Install) -> None:
    plugin(GOOD, probe="Probe")
    plugin(GOOD, probe="Probe")
    with pytest.raises(ConfigError, match="both have a plug-in 'probe'"), broker(plugins="probe"):
        pass


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"plugins": "a b"}, "'a b' is not the name of a plug-in"),
        ({"plugins": "probe,probe"}, "probe is named more than once"),
        ({"plugins": ",".join(f"p{index}" for index in range(33))}, "33 plug-ins are named"),
        ({"plugins": "probe", "pluginsFile": "/absent.toml"}, "pluginsFile=/absent.toml"),
    ],
)
def test_settings_of_plugins_are_checked(plugin: Install, settings: dict[str, str], reason: str) -> None:
    plugin(GOOD, probe="Probe")
    with pytest.raises(ConfigError, match=reason), broker(**settings):
        pass


def test_doctor_shows_plugins_of_brokers_and_of_a_file(
    plugin: Install, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    plugin(GOOD, probe="Probe")
    conf = tmp_path / "broker.conf"

    def doctor(*arguments: str) -> dict[str, dict[str, str]]:
        cli.run(["doctor", "-n", server.namesrv, "-o", "json", "--disk-free-min", "0", *arguments])
        return {each["check"]: each for each in json.loads(capfd.readouterr().out)}

    with broker(plugins="probe", brokerName="broker-a") as server:
        found = doctor()["plug-in probe of broker-a"]
        assert (found["level"], found["found"][:18]) == ("ok", "observer of probes")
        conf.write_text(f"plugins=probe\nstorePathRootDir={tmp_path}/other\nhttpPort=-1\n")
        assert doctor("-c", str(conf))["plug-in probe"]["found"].startswith("observer of probes")
        conf.write_text("plugins=prob\n")
        found = doctor("-c", str(conf))["plug-ins"]
        assert (found["level"], "no installed distribution has a plug-in 'prob'" in found["found"]) == (
            "bad",
            True,
        )
