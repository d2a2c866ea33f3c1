"""Unserved requests: known codes that a broker or name server does not serve, with the reason for the sender."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from rmqpy.protocol.codes import RequestCode

_CONTROLLER: Final = """
    CONTROLLER_ALTER_SYNC_STATE_SET CONTROLLER_ELECT_MASTER CONTROLLER_REGISTER_BROKER
    CONTROLLER_GET_REPLICA_INFO CONTROLLER_GET_METADATA_INFO CONTROLLER_GET_SYNC_STATE_DATA
    UPDATE_CONTROLLER_CONFIG GET_CONTROLLER_CONFIG CLEAN_BROKER_DATA CONTROLLER_GET_NEXT_BROKER_ID
    CONTROLLER_APPLY_BROKER_ID BROKER_CLOSE_CHANNEL_REQUEST CHECK_NOT_ACTIVE_BROKER_REQUEST
    GET_BROKER_LIVE_INFO_REQUEST GET_SYNC_STATE_DATA_REQUEST RAFT_BROKER_HEART_BEAT_EVENT_REQUEST
    RMQPY_CONTROLLER_CALL
"""

#: Reason → names of codes; the last reason of a code applies.
_BY_BROKER: Final[Mapping[str, str]] = {
    "it is a request to a controller": _CONTROLLER,
    "messages of lite topics are acknowledged with ACK_MESSAGE": """
        ACK_LITE_MESSAGE
    """,
    "only the master itself reports the end of its log to a slave": """
        RESET_MASTER_FLUSH_OFFSET
    """,
    "accounts contain secrets, which are never returned": """
        GET_BROKER_CLUSTER_ACL_CONFIG
    """,
    "timed messages wait in the file wheel alone": """
        SWITCH_TIMER_ENGINE
    """,
    "cold data is not limited, and the page cache is the system's": """
        UPDATE_COLD_DATA_FLOW_CTR_CONFIG REMOVE_COLD_DATA_FLOW_CTR_CONFIG GET_COLD_DATA_FLOW_CTR_INFO
        SET_COMMITLOG_READ_MODE
    """,
    "queues and metadata are files, not a RocksDB": """
        CHECK_ROCKSDB_CQ_WRITE_PROGRESS EXPORT_ROCKSDB_CONFIG_TO_JSON
    """,
    "it is a request to a name server": """
        PUT_KV_CONFIG GET_KV_CONFIG DELETE_KV_CONFIG REGISTER_BROKER UNREGISTER_BROKER GET_ROUTEINFO_BY_TOPIC
        GET_BROKER_CLUSTER_INFO WIPE_WRITE_PERM_OF_BROKER GET_ALL_TOPIC_LIST_FROM_NAMESERVER
        DELETE_TOPIC_IN_NAMESRV REGISTER_TOPIC_IN_NAMESRV GET_KVLIST_BY_NAMESPACE GET_TOPICS_BY_CLUSTER
        GET_SYSTEM_TOPIC_LIST_FROM_NS GET_UNIT_TOPIC_LIST GET_HAS_UNIT_SUB_TOPIC_LIST
        GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST UPDATE_NAMESRV_CONFIG GET_NAMESRV_CONFIG QUERY_DATA_VERSION
        ADD_WRITE_PERM_OF_BROKER GET_BROKER_MEMBER_GROUP BROKER_HEARTBEAT
    """,
    "this process is one broker, not a container of brokers": """
        ADD_BROKER REMOVE_BROKER
    """,
    "it is a request of a broker to a client": """
        CHECK_TRANSACTION_STATE NOTIFY_CONSUMER_IDS_CHANGED RESET_CONSUMER_CLIENT_OFFSET GET_CONSUMER_STATUS_FROM_CLIENT
        PUSH_REPLY_MESSAGE_TO_CLIENT NOTIFY_UNSUBSCRIBE_LITE
    """,
    "no tool or client sends it": """
        QUERY_BROKER_OFFSET GET_TOPIC_CONFIG_LIST GET_TOPIC_NAME_LIST TRIGGER_DELETE_FILES GET_CLIENT_CONFIG
        SUSPEND_CONSUMER RESUME_CONSUMER RESET_CONSUMER_OFFSET_IN_CONSUMER RESET_CONSUMER_OFFSET_IN_BROKER
        ADJUST_CONSUMER_THREAD_POOL WHO_CONSUME_THE_MESSAGE REGISTER_FILTER_SERVER REGISTER_MESSAGE_FILTER_CLASS
    """,
}

#: Code → reason.
UNSERVED_BY_BROKER: Final[Mapping[RequestCode, str]] = {
    RequestCode[name]: reason for reason, names in _BY_BROKER.items() for name in names.split()
}

#: Code → reason. A served code has one too, which is never sent.
UNSERVED_BY_NAME_SERVER: Final[Mapping[RequestCode, str]] = {
    code: "a controller serves it, on its own port"
    if code.name in _CONTROLLER.split()
    else "it is a request to a broker"
    for code in RequestCode
}

_LOG_ENTRIES: Final = (
    "BROKER_CLOSE_CHANNEL_REQUEST",
    "CHECK_NOT_ACTIVE_BROKER_REQUEST",
    "GET_BROKER_LIVE_INFO_REQUEST",
    "GET_SYNC_STATE_DATA_REQUEST",
    "RAFT_BROKER_HEART_BEAT_EVENT_REQUEST",
)

#: Code → reason. A served code has one too, which is never sent.
UNSERVED_BY_CONTROLLER: Final[Mapping[RequestCode, str]] = {
    code: "it is an entry of the log of Apache's controllers"
    if code.name in _LOG_ENTRIES
    else "it is a request to a broker or name server"
    for code in RequestCode
}
