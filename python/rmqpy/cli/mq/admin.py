"""`mqadmin`: the daily commands of Apache's tool; the others name the command to use instead.

Owns both tables, which together list every command of Apache's tool. A command is imported when it is run. Exit codes
are those of `rmqpy`, unlike Apache's: 0 only when the command was done.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

import click

#: Command → its module below this package; the function has the command's name in snake case.
SERVED: Final = {
    **dict.fromkeys(
        (
            *("topicList", "topicRoute", "topicStatus", "topicClusterList"),
            *("updateTopic", "updateTopicPerm", "deleteTopic"),
        ),
        "topics",
    ),
    **dict.fromkeys(("updateStaticTopic", "remappingStaticTopic"), "static_topics"),
    **dict.fromkeys(
        (
            *("updateSubGroup", "deleteSubGroup", "getConsumerConfig", "consumerProgress"),
            *("consumerConnection", "producerConnection", "setConsumeMode", "exportPopRecord"),
            *("resetOffsetByTime", "skipAccumulatedMessage", "cloneGroupOffset"),
        ),
        "groups",
    ),
    **dict.fromkeys(
        (
            *("clusterList", "brokerStatus", "getBrokerConfig", "updateBrokerConfig"),
            *("getNamesrvConfig", "updateNamesrvConfig", "updateKvConfig", "deleteKvConfig"),
            *("wipeWritePerm", "addWritePerm", "haStatus", "getBrokerEpoch"),
        ),
        "brokers",
    ),
    **dict.fromkeys(
        (
            *("queryMsgById", "queryMsgByKey", "queryMsgByUniqueKey", "queryMsgByOffset"),
            *("queryMsgTraceById", "sendMessage", "consumeMessage", "printMsg"),
        ),
        "messages",
    ),
    **dict.fromkeys(
        (
            *("getSyncStateSet", "getControllerMetaData", "getControllerConfig", "updateControllerConfig"),
            *("electMaster", "cleanBrokerMetadata"),
        ),
        "controllers",
    ),
}
_ACCESS: Final = "use rmqpy acl"
_REPLICAS: Final = "use rmqpy cluster replicas"
_ROCKS: Final = "rmqpy does not use RocksDB"
_COLD: Final = "reads of cold data are not throttled"
_LITE: Final = "use Apache's mqadmin, which brokers answer"
_CONTAINER: Final = "each broker has its own process: rmqpy broker"
#: Command → the command to use instead, or the reason that there is none.
ELSEWHERE: Final = {
    "addBroker": _CONTAINER,
    "removeBroker": _CONTAINER,
    "allocateMQ": "use rmqpy group members, which lists the members",
    "brokerConsumeStats": "use rmqpy group lag",
    "checkMsgSendRT": "use rmqpy bench latency",
    "clusterRT": "use rmqpy bench latency",
    "sendMsgStatus": "use rmqpy bench latency",
    "cleanExpiredCQ": "brokers remove expired queues by themselves",
    "deleteExpiredCommitLog": "brokers remove expired files by themselves",
    "cleanUnusedTopic": "use rmqpy topic delete",
    "consumerStatus": "use rmqpy group members, and rmqpy client stack",
    "producer": "use rmqpy client list",
    "startMonitoring": "use rmqpy group watch, or /metrics of the brokers",
    "statsAll": "use rmqpy topic status",
    "printMsgByQueue": "use rmqpy consume TOPIC --queue BROKER:N",
    "queryCq": "use rmqpy topic describe, and rmqpy consume TOPIC --queue BROKER:N --from OFFSET",
    "updateOrderConf": "use rmqpy topic create --order, or mqadmin updateKvConfig -s ORDER_TOPIC_CONFIG",
    "updateTopicList": "use updateTopic for each topic",
    "updateSubGroupList": "use updateSubGroup for each group",
    "exportConfigs": "use rmqpy config get",
    "exportMetadata": "use rmqpy topic settings and rmqpy group describe with -o json",
    "exportMetrics": "use /metrics of the brokers",
    "dumpCompactionLog": "read a compacted topic with rmqpy consume",
    "switchTimerEngine": "rmqpy has a single timer engine",
    **dict.fromkeys(
        ("exportMetadataInRocksDB", "rocksDBConfigToJson", "checkRocksdbCqWriteProgress"), _ROCKS
    ),
    "resetMasterFlushOffset": _REPLICAS,
    **dict.fromkeys(
        (
            *("getColdDataFlowCtrInfo", "updateColdDataFlowCtrGroupConfig"),
            *("removeColdDataFlowCtrGroupConfig", "setCommitLogReadAheadMode"),
        ),
        _COLD,
    ),
    **dict.fromkeys(
        (
            *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
            *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
            *("updateAclConfig", "deleteAclConfig", "clusterAclConfigVersion", "updateGlobalWhiteAddr"),
        ),
        _ACCESS,
    ),
    **dict.fromkeys(
        (
            *("getBrokerLiteInfo", "getParentTopicInfo", "getLiteTopicInfo", "getLiteClientInfo"),
            *("getLiteGroupInfo", "triggerLiteDispatch"),
        ),
        _LITE,
    ),
}


class _Tool(click.Group):
    """Finds commands in the tables. A command that is not served fails with its reason, whatever its options."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(SERVED)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in SERVED:
            return None
        module = import_module(f"rmqpy.cli.mq.{SERVED[cmd_name]}")
        command: click.Command = getattr(module, _function(cmd_name))
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] == "help":
            # Apache's form of --help.
            args = [args[1], "--help"] if len(args) > 1 else ["--help"]
            if args == ["--help"]:
                click.echo(ctx.get_help())
                ctx.exit()
        if args[0] in ELSEWHERE:
            raise click.ClickException(f"{args[0]} is not served: {ELSEWHERE[args[0]]}")
        if args[0] not in SERVED:
            from difflib import get_close_matches

            near = get_close_matches(args[0], [*SERVED, *ELSEWHERE], 1)
            ctx.fail(f"no command {args[0]!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        return super().resolve_command(ctx, args)


@click.group("mqadmin", cls=_Tool, context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """RocketMQ's admin tool, at the name servers of -n or $NAMESRV_ADDR.

    \b
    mqadmin topicRoute -n 10.0.0.1:9876 -t orders
    mqadmin help topicRoute
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one mqadmin command and return its exit code."""
    from rmqpy.cli import run_command

    return run_command(command, "mqadmin", arguments)


def mqadmin() -> None:
    """Run `mqadmin` and exit with its code."""
    sys.exit(run())


def _function(name: str) -> str:
    """
    >>> _function("queryMsgById")
    'query_msg_by_id'
    """
    return "".join(f"_{each.lower()}" if each.isupper() else each for each in name)
