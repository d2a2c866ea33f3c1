"""Unsupported keys of Apache's `broker.conf`: the harmless ones and the guarded ones.

Owns two tables. `HARMLESS`: the broker keeps every promise without the key, so it starts with a warning. Guarded: with
another value than the accepted ones something that the operator asked for, such as access control or a replica, would
silently be missing, so the broker refuses to start. No key is in both tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from rmqpy.config import home
from rmqpy.config.keys import nearest
from rmqpy.errors import ConfigError

_ENGINE = "the engine sizes threads, queues and buffers"
_FLOW = "the engine bounds its queues and answers SYSTEM_BUSY by itself"
_RETENTION = "files are deleted one by one, except while they are read"
_POP = "popped messages are revived by the timers, and their checkpoints are always records"
_TIMER = "one thread delivers timed messages from the file wheel"
_TRANSACTION = "the end of a transaction is stored with its message, and open transactions are kept in memory"
_SLAVES = "slaves set the pace of replication"
_ELECTION = "controllers are those of controllerAddr, and the store has the epochs and the id"
_FILTER = "SQL92 filters are evaluated when messages are read, without precomputed bits"
_METRICS = "metrics are at httpPort, for Prometheus"
_LITE = "pops of lite topics follow events, without separate limits"

_HARMLESS: Final = (
    (
        _ENGINE,
        """serverWorkerThreads serverSelectorThreads serverCallbackExecutorThreads serverOnewaySemaphoreValue
        serverAsyncSemaphoreValue serverSocketSndBufSize serverSocketRcvBufSize writeBufferHighWaterMark
        writeBufferLowWaterMark serverSocketBacklog useEpollNativeSelector serverPooledByteBufAllocatorEnable
        enableShutdownGracefully shutdownWaitTimeSeconds clientWorkerThreads clientCallbackExecutorThreads
        clientOnewaySemaphoreValue clientAsyncSemaphoreValue clientCloseSocketIfTimeout
        clientChannelMaxIdleTimeSeconds connectTimeoutMillis channelNotActiveInterval
        sendMessageThreadPoolNums putMessageFutureThreadPoolNums pullMessageThreadPoolNums
        litePullMessageThreadPoolNums ackMessageThreadPoolNums processReplyMessageThreadPoolNums
        queryMessageThreadPoolNums adminBrokerThreadPoolNums clientManageThreadPoolNums
        consumerManageThreadPoolNums heartbeatThreadPoolNums endTransactionThreadPoolNums
        loadBalanceProcessorThreadPoolNums recoverThreadPoolNums
        sendThreadPoolQueueCapacity putThreadPoolQueueCapacity pullThreadPoolQueueCapacity
        litePullThreadPoolQueueCapacity ackThreadPoolQueueCapacity replyThreadPoolQueueCapacity
        queryThreadPoolQueueCapacity clientManagerThreadPoolQueueCapacity consumerManagerThreadPoolQueueCapacity
        heartbeatThreadPoolQueueCapacity endTransactionPoolQueueCapacity adminBrokerThreadPoolQueueCapacity
        loadBalanceThreadPoolQueueCapacity transferMsgByHeap warmMapedFileEnable useReentrantLockWhenPutMessage
        dataReadAheadEnable asyncSendEnable isolateLogEnable isEnableBatchPush recoverConcurrently
        commitLogRecoverMaxNum checkCRCOnRecover checkCommitLogOffsetOnRecover maxStatsIdleTimeInMinutes
        enableDetailStat""",
    ),
    (
        _FLOW,
        """brokerFastFailureEnable waitTimeMillsInSendQueue waitTimeMillsInPullQueue waitTimeMillsInLitePullQueue
        waitTimeMillsInHeartbeatQueue waitTimeMillsInTransactionQueue waitTimeMillsInAckQueue
        waitTimeMillsInAdminBrokerQueue osPageCacheBusyTimeOutMills disableConsumeIfConsumerReadSlowly
        consumerFallbehindThreshold enableNetWorkFlowControl coldDataFlowControlEnable coldCtrStrategyEnable
        usePIDColdCtrStrategy cgColdReadThreshold globalColdReadThreshold""",
    ),
    (
        _RETENTION,
        """deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval destroyMapedFileIntervalForcibly
        redeleteHangedFileInterval deleteFileBatchMax cleanResourceInterval""",
    ),
    (
        "both modes flush by time, see flushIntervalCommitLog",
        """flushCommitLogTimed flushCommitLogLeastPages flushCommitLogThoroughInterval commitIntervalCommitLog
        commitCommitLogLeastPages commitCommitLogThoroughInterval syncFlushTimeout putMessageTimeout
        flushIntervalConsumeQueue flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval writeWithoutMmap""",
    ),
    (
        "the write ring takes the place of the transient pool, and its messages survive a kill",
        "transientStorePoolEnable transientStorePoolSize fastFailIfNoBufferInStorePool",
    ),
    (
        "pulls are bounded by pullMessagesMax and pullBytesMax",
        """maxTransferBytesOnMessageInMemory maxTransferCountOnMessageInMemory maxTransferBytesOnMessageInDisk
        maxTransferCountOnMessageInDisk pullBatchMaxMessageCount litePullMessageEnable""",
    ),
    (
        "every registration is complete and in one piece",
        """forceRegister compressedRegister enableSplitRegistration splitRegistrationSize
        enableSingleTopicRegister enableRegisterProducer""",
    ),
    ("name servers are those of namesrvAddr", "rmqAddressServerDomain rmqAddressServerSubGroup"),
    ("name servers are those of namesrvAddr", "updateNameServerAddrPeriod fetchNamesrvAddrInterval"),
    (
        _SLAVES,
        "haSlaveFallbehindMax haFlowControlEnable maxHaTransferByteInSecond",
    ),
    (
        _ELECTION,
        """fetchControllerAddrByDnsLookup dLegerGroup dLegerPeers dLegerSelfId
        storePathEpochFile storePathBrokerIdentity""",
    ),
    (
        "support of broker heartbeats is detected",
        "compatibleWithOldNameSrv",
    ),
    (
        "members are notified of changes immediately, and expire after channelExpiredTimeout",
        "realTimeNotifyConsumerChange subscriptionExpiredTimeout",
    ),
    (
        "broadcast consumers keep their offsets themselves",
        "enableBroadcastOffsetStore broadcastOffsetExpireSecond broadcastOffsetExpireMaxSecond",
    ),
    (
        _FILTER,
        """enableCalcFilterBitMap expectConsumerNumUseFilter maxErrorRateOfBloomFilter
        bitMapLengthConsumeQueueExt mappedFileSizeConsumeQueueExt""",
    ),
    ("returned messages are not filtered again", "filterSupportRetry"),
    ("filters of groups that left are kept in consumerFilter.json for a day", "filterDataCleanTimeSpan"),
    ("SQL92 filters replace filter classes", "filterServerNums"),
    (
        _POP,
        """reviveInterval reviveMaxSlow reviveScanTime enablePopBufferMerge popCkStayBufferTime
        popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize popPollingMapSize
        popConsumerKVServiceInit popConsumerKVServiceEnable
        enablePopBatchAck enablePopLog appendAckAsync
        appendCkAsync popReviveMaxAttemptTimes popReviveSkipIfGroupAbsent""",
    ),
    (
        _TIMER,
        """timerGetMessageThreadNum timerPutMessageThreadNum timerCongestNumEachSlot timerStopEnqueue
        timerStopDequeue timerCheckMetricsWhen timerRocksDBEnable timerInterceptDelayLevel timerSkipUnknownError
        timerEnableCheckMetrics timerEnableDisruptor timerEnableRetryUntilSuccess
        timerWheelSnapshotFlush timerWheelSnapshotIntervalMs""",
    ),
    (
        _TRANSACTION,
        """transactionOpMsgMaxSize transactionOpBatchInterval transactionMetricFlushInterval
        transRocksDBEnable transWriteOriginTransHalfEnable""",
    ),
    ("delayed messages are delivered in batches", "enableScheduleAsyncDeliver"),
    (
        "users and policies are kept in memory",
        """userCacheMaxNum userCacheExpiredSecond userCacheRefreshSecond aclCacheMaxNum aclCacheExpiredSecond
        aclCacheRefreshSecond statefulAuthenticationCacheMaxNum statefulAuthenticationCacheExpiredSecond
        statefulAuthorizationCacheMaxNum statefulAuthorizationCacheExpiredSecond""",
    ),
    (
        _METRICS,
        """metricsExporterType metricsPromExporterPort metricsPromExporterHost metricsGrpcExporterTarget
        metricsGrpcExporterHeader metricGrpcExporterTimeOutInMills metricGrpcExporterIntervalInMills
        metricLoggingExporterIntervalInMills metricsLabel metricsInDelta metricsOtelCardinalityLimit
        estimateAccumulation sampleCountThreshold maxConsumeQueueScan""",
    ),
    (
        _LITE,
        """enableLiteEventMode maxClientEventCount liteEventCheckInterval liteEventFullDispatchDelayTime
        liteLagLatencyCollectEnable liteLagLatencyTopK combineCQUseRocksdbForLmq""",
    ),
    (
        "the index is kept in its files",
        """indexFileWriteEnable indexFileReadEnable indexRocksDBEnable useSeparateStorePathForRocksdbCQ""",
    ),
    ("set on the command line with -c", "brokerConfigPath"),
    ("topic names may have 127 characters", "maxTopicLength"),
    ("statistics of deleted topics and groups are dropped", "autoDeleteUnusedStats enableCleanExpiredOffset"),
)

#: Key → the reason why ignoring it is harmless.
HARMLESS: Final[Mapping[str, str]] = {name: reason for reason, names in _HARMLESS for name in names.split()}

#: Paths in old sample files; this broker derives them from the root.
DERIVED_PATHS: Final[Mapping[str, str]] = {
    "storeCheckpoint": "checkpoint",
    "abortFile": "abort",
}


class _Guard(NamedTuple):
    safe: tuple[str, ...]
    reason: str


_OFF = ("false",)
_NONE = ("",)
#: Accepted values, the reason why others are refused, and the keys.
GUARDED: Final = (
    (_OFF, "use tls.enable for this server's own connections", "useTLS"),
    (_OFF, "use inSyncReplicas for a fixed number of copies",
     "enableAutoInSyncReplicas"),
    (_OFF, "a controller changes roles, see enableControllerMode", "enableDLegerCommitLog"),
    (_OFF, "one broker grants queue locks, not a majority of its group", "lockInStrictMode"),
    (_OFF, "only slaves copy a log", "duplicationEnable"),
    (_OFF, "every replica of an elected set may become its master", "asyncLearner"),
    (_OFF, "name servers are those of namesrvAddr", "fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup"),
    (("default",), "only Apache's default file layout is supported", "storeType"),
    (("v1",), "metadata is kept in JSON files", "configManagerVersion"),
    (_OFF, "metadata is kept in JSON files", "useSingleRocksDBForAllConfigs persistConsumerOffsetIncrementally"),
    (_OFF, "the format of queue files would change", "enableConsumeQueueExt"),
    (_OFF, "pull consumers cannot be refused", "rejectPullConsumerEnable"),
    (("0",), "a start time for sends is not supported", "startAcceptSendRequestTimeStamp"),
    (_NONE, "the commit log is in one folder", "readOnlyCommitLogStorePaths"),
    (_NONE, "plug-ins are Java classes; tieredStorage keeps old messages elsewhere", "messageStorePlugIn"),
)  # fmt: skip

_GUARDS: Final[Mapping[str, _Guard]] = {
    name: _Guard(safe, reason) for safe, reason, names in GUARDED for name in names.split()
}


def is_guarded(wire: str) -> bool:
    """Whether some value of this key is refused."""
    return wire in _GUARDS


def refusal(wire: str, value: str) -> str | None:
    """Return the reason why the broker must not start with this setting, or None."""
    guard = _GUARDS.get(wire)
    if guard is None or value.strip().lower() in (safe.lower() for safe in guard.safe):
        return None
    return f"{wire}={value}: {guard.reason}"


def warning(wire: str, value: str, root: str, served: Set[str]) -> str | None:
    """Return the warning for a key without effect; None if it is `served`. `root`: of the store."""
    if wire in DERIVED_PATHS:
        derived = os.path.join(root, DERIVED_PATHS[wire])
        if os.path.abspath(home.expand(value)) == derived:
            return None
        return f"{wire}={value} is ignored: this broker uses {derived}"
    if wire in served:
        return None
    if wire in HARMLESS:
        return f"{wire}={value} is ignored: {HARMLESS[wire]}"
    if is_guarded(wire):
        return None
    return _unknown(wire, served, " is ignored")


def refuse_unknown(given: Iterable[str], served: Set[str]) -> None:
    """Raise `ConfigError` for unknown keys of a command line. In a file, which may belong to a newer release, they only
    cause a warning; on a command line an effect is expected."""
    known = served | HARMLESS.keys() | DERIVED_PATHS.keys() | _GUARDS.keys()
    if unknown := [_unknown(wire, served) for wire in given if wire not in known]:
        raise ConfigError("; ".join(unknown))


def _unknown(wire: str, served: Set[str], consequence: str = "") -> str:
    close = nearest(wire, served | HARMLESS.keys())
    return f"unknown key {wire}{consequence}" + (f": did you mean {close}?" if close else "")
