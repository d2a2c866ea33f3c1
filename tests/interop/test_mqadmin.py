"""Apache's command line tool, both versions, against our broker and name server: `mqadmin.py` has the commands.

`make campaign NAME=mqadmin-table` also runs them against Apache's broker, and documents the differences.
"""

from collections.abc import Callable, Iterator
from functools import cache

import pytest

from . import mqadmin
from .clients import InteropClient, Printed, ProcessClient
from .mqadmin import (
    ACCESS,
    ENDLESS,
    LITE,
    LOCAL,
    NOT_SERVED,
    PHASES,
    REFUSED,
    AdminEnvironment,
    Command,
    command_of,
)
from .servers import Cluster
from .toolchain import JAVA_CLIENTS

pytestmark = pytest.mark.timeout(200, func_only=True)

LABELS = [label for phase in PHASES for label in phase if "@" not in label]
Results = tuple[dict[str, Command], dict[str, Printed]]


@pytest.fixture(scope="module")
def environment(
    cluster_name: str,
    cluster_of: Callable[[str], Cluster],
    client_of: Callable[[str], InteropClient],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[AdminEnvironment]:
    client = client_of("java-5.5.0")
    assert isinstance(client, ProcessClient)
    with mqadmin.built(
        cluster_of(cluster_name), client, tmp_path_factory.mktemp("environment")
    ) as environment:
        yield environment


@pytest.fixture(scope="module")
def results_of(
    environment: AdminEnvironment, client_of: Callable[[str], InteropClient]
) -> Callable[[str], Results]:
    """Output of all commands of one version; they run when the first test of that version asks."""

    @cache
    def results(version: str) -> Results:
        tool = client_of(f"java-{version}")
        assert isinstance(tool, ProcessClient)
        return mqadmin.run_phases(AdminEnvironment(environment.cluster, tool, environment.names), version)

    return results


@pytest.mark.parametrize("version", JAVA_CLIENTS)
@pytest.mark.parametrize("label", LABELS)
def test_mqadmin_command_gets_its_answer(
    label: str, version: str, environment: AdminEnvironment, results_of: Callable[[str], Results]
) -> None:
    commands, printed = results_of(version)
    if label not in commands:
        pytest.skip("this version of the tool has no such command")
    if (environment.cluster.is_apache, label, version) == (True, "clusterList", "4.9.8"):
        pytest.skip("Apache's 5.5 broker has renamed a value that this tool reads; ours sends both names")
    missing = environment.missing(printed[label], commands[label].expected)
    assert not missing, f"{label} {commands[label].arguments} does not say {missing}:\n{printed[label]}"


def test_mqadmin_is_refused_with_the_codes_of_the_original(environment: AdminEnvironment) -> None:
    printed = environment.run({label: command.arguments for label, command in REFUSED.items()})
    silent = {
        label: missing
        for label in REFUSED
        if (missing := environment.missing(printed[label], REFUSED[label].expected))
    }
    assert not silent, {label: printed[label] for label in silent}


def test_unserved_mqadmin_commands_get_the_reason(environment: AdminEnvironment) -> None:
    if environment.cluster.is_apache:
        pytest.skip("Apache's broker serves it")
    printed = environment.run({label: arguments for label, (arguments, _) in NOT_SERVED.items()})
    silent = [
        label for label, (_, reason) in NOT_SERVED.items() if environment.missing(printed[label], [reason])
    ]
    assert not silent, {label: printed[label] for label in silent}


def test_every_command_of_the_tool_is_accounted_for(client_of: Callable[[str], InteropClient]) -> None:
    tool = client_of("java-5.5.0")
    assert isinstance(tool, ProcessClient)
    listed = {command_of(label) for label in [*LABELS, *ACCESS, *LITE, *NOT_SERVED, *LOCAL, *ENDLESS]}
    assert set(tool.mqadmin_names()) == listed
