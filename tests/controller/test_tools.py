"""mqadmin's commands for controllers print what Apache's tool prints."""

import asyncio
from collections.abc import Awaitable, Callable

from click.testing import CliRunner

from fakereplica import CLUSTER, NAME, Replica
from rmqpy.cli.mq.admin import SERVED
from rmqpy.controller import ControllerServer


async def mqadmin(command: str, *arguments: str) -> str:
    """The output of a command."""
    from importlib import import_module

    module = import_module(f"rmqpy.cli.mq.{SERVED[command]}")
    name = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in command)
    result = await asyncio.to_thread(CliRunner().invoke, getattr(module, name), list(arguments))
    assert result.exit_code == 0, result.output + repr(result.exception)
    return result.output


async def test_commands_print_what_the_original_prints(
    controller: ControllerServer, replica: Callable[..., Awaitable[Replica]]
) -> None:
    first = await replica(controller, 1, oneway=True)
    await first.elect()
    second = await replica(controller, 2, oneway=True)
    address = controller.address
    assert await mqadmin("getControllerMetaData", "-a", address) == (
        "\n#ControllerGroup\tcontrollers\n#ControllerLeaderId\tn0\n"
        f"#ControllerLeaderAddress\t{address}\n#Peer:\tn0:{address}\n"
    )
    shown = await mqadmin("getSyncStateSet", "-a", address, "-b", NAME)
    assert shown == (
        f"\n#brokerName\t{NAME}\n#MasterBrokerId\t1\n#MasterAddr\t{first.address}\n#MasterEpoch\t1\n"
        "#SyncStateSetEpoch\t1\n#SyncStateSetNums\t1\n"
        f"\nInSyncReplica:\tReplicaIdentity{{brokerName='{NAME}', brokerId=1, "
        f"brokerAddress='{first.address}', alive=true}}\n"
        f"\nNotInSyncReplica:\tReplicaIdentity{{brokerName='{NAME}', brokerId=2, "
        f"brokerAddress='{second.address}', alive=true}}\n"
    )
    changed = await mqadmin(
        "updateControllerConfig", "-a", address, "-k", "enableElectUncleanMaster", "-v", "true"
    )
    assert "update controller config success!" in changed
    settings = await mqadmin("getControllerConfig", "-a", address)
    assert f"============{address}============" in settings
    assert f"{'enableElectUncleanMaster':<50}=  true" in settings
    elected = await mqadmin("electMaster", "-a", address, "-b", "2", "-bn", NAME, "-c", CLUSTER)
    assert f"#BrokerMasterAddr\t{second.address}" in elected
    cleaned = await mqadmin("cleanBrokerMetadata", "-a", address, "-bn", NAME, "-b", "1", "-l")
    assert cleaned == f"clear broker {NAME} metadata from controller success! \n"
