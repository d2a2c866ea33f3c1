"""Keys of Apache's `broker.conf` that this broker does not support, and what becomes of them.

Owns two tables. `HARMLESS`: without the key the broker keeps every promise, so it starts and says so. Guarded: with
another value than the listed ones the operator asked for something that would silently not happen, such as
access control or a replica, so the broker refuses to start. No key is in two tables.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from rmqpy.config import home
from rmqpy.config.keys import nearest
from rmqpy.errors import ConfigError

_ENGINE = "threads, queues and buffers are sized by the engine"
_FLOW = "the engine bounds its queues and answers SYSTEM_BUSY by itself"
_RETENTION = "files are deleted one by one, and readers keep what they read from"
_POP = "POP consumption is not supported yet"
_TIMER = "timed messages wait in the file wheel, and one thread delivers them"
_TRANSACTION = "an end of a transaction is marked with its message, and the open ones are kept in memory"
_SLAVES = "slaves are sent what they take, and roles do not change by themselves yet"
_FILTER = "SQL92 filters are evaluated for each message that is read, without bits computed in advance"
_METRICS = "metrics are at httpPort, for Prometheus"
_LITE = "lite and multi-dispatch topics are not supported"

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
        "the flush is bounded by time in both modes, see flushIntervalCommitLog",
        """flushCommitLogTimed flushCommitLogLeastPages flushCommitLogThoroughInterval commitIntervalCommitLog
        commitCommitLogLeastPages commitCommitLogThoroughInterval transientStorePoolSize
        fastFailIfNoBufferInStorePool syncFlushTimeout putMessageTimeout flushIntervalConsumeQueue
        flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval writeWithoutMmap""",
    ),
    (
        "pulls take what they ask for, up to pullMessagesMax and pullBytesMax",
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
        """haSlaveFallbehindMax haFlowControlEnable maxHaTransferByteInSecond controllerAddr
        fetchControllerAddrByDnsLookup brokerElectionPriority dLegerGroup dLegerPeers dLegerSelfId
        storePathEpochFile storePathBrokerIdentity""",
    ),
    (
        "a name server that does not know heartbeats of brokers is asked what it does know",
        "compatibleWithOldNameSrv",
    ),
    (
        "changes of a group are told to its members at once and expired members leave after channelExpiredTimeout",
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
    ("messages that were returned are not filtered once more", "filterSupportRetry"),
    ("filters of groups that left are kept in consumerFilter.json for a day", "filterDataCleanTimeSpan"),
    ("SQL92 filters take the place of classes", "filterServerNums"),
    (
        _POP,
        """reviveInterval reviveMaxSlow reviveScanTime enablePopBufferMerge popCkStayBufferTime
        popCkStayBufferTimeOut popCkMaxBufferSize popCkOffsetMaxQueueSize popPollingSize popPollingMapSize
        maxPopPollingSize popFromRetryProbability enableRetryTopicV2 retrieveMessageFromPopRetryTopicV1
        popInflightMessageThreshold enablePopMessageThreshold popConsumerKVServiceInit popConsumerKVServiceEnable
        enablePopBatchAck enablePopLog popResponseReturnActualRetryTopic useSeparateRetryQueue appendAckAsync
        appendCkAsync popReviveMaxAttemptTimes popReviveSkipIfGroupAbsent popFromRetryProbabilityForPriority
        serverLoadBalancerEnable defaultPopShareQueueNum""",
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
        """maxLmqConsumeQueueNum enableLmqQuota enableLiteEventMode maxLiteSubscriptionCount liteTtlCheckInterval
        minLiteTTl liteSubscriptionCheckTimeoutMills combineCQUseRocksdbForLmq priorityOrderAsc""",
    ),
    (
        "compacted topics are not supported yet",
        """enableCompaction compactionThreadNum compactionScheduleInternal maxOffsetMapSize""",
    ),
    (
        "the index is kept in its files",
        """indexFileWriteEnable indexFileReadEnable indexRocksDBEnable useSeparateStorePathForRocksdbCQ""",
    ),
    ("the broker knows the file it was started with", "brokerConfigPath"),
    ("names of topics may have 127 characters", "maxTopicLength"),
    ("statistics of deleted topics and groups are dropped", "autoDeleteUnusedStats enableCleanExpiredOffset"),
)

#: Key to the reason why ignoring it does no harm.
HARMLESS: Final[Mapping[str, str]] = {name: reason for reason, names in _HARMLESS for name in names.split()}

#: Paths of old sample files; this broker derives them from the root.
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
    (_OFF, "whether this server's own connections are encrypted says tls.enable", "useTLS"),
    (_OFF, "replies wait for a number of copies that is set: inSyncReplicas",
     "allAckInSyncStateSet enableAutoInSyncReplicas"),
    (_OFF, "roles do not change by themselves yet", "enableControllerMode enableDLegerCommitLog"),
    (_OFF, "locks of queues are given by one broker, not by most of those of its name", "lockInStrictMode"),
    (_OFF, "a log is copied by a slave and in no other way", "duplicationEnable"),
    (_OFF, "name servers are those of namesrvAddr", "fetchNamesrvAddrByAddressServer fetchNameSrvAddrByDnsLookup"),
    (("default",), "only Apache's default file layout is supported", "storeType"),
    (("v1",), "metadata is kept in JSON files", "configManagerVersion"),
    (_OFF, "metadata is kept in JSON files", "useSingleRocksDBForAllConfigs persistConsumerOffsetIncrementally"),
    (_OFF, "the queue files would get another meaning", "enableConsumeQueueExt"),
    (_OFF, "messages would not be dispatched to their queues", "enableLmq enableMultiDispatch"),
    (_OFF, "consumers could not be refused", "rejectPullConsumerEnable"),
    (("PULL",), "POP consumption is not supported yet", "defaultMessageRequestMode"),
    (("0",), "sends cannot be refused until a time", "startAcceptSendRequestTimeStamp"),
    (_NONE, "the commit log lies in one folder", "readOnlyCommitLogStorePaths"),
    (_NONE, "plug-ins are Java classes", "messageStorePlugIn"),
)  # fmt: skip

_GUARDS: Final[Mapping[str, _Guard]] = {
    name: _Guard(safe, reason) for safe, reason, names in GUARDED for name in names.split()
}


def is_guarded(wire: str) -> bool:
    """Whether some value of this key is refused."""
    return wire in _GUARDS


def refusal(wire: str, value: str) -> str | None:
    """The reason why the broker must not start with this setting; None when it may."""
    guard = _GUARDS.get(wire)
    if guard is None or value.strip().lower() in (safe.lower() for safe in guard.safe):
        return None
    return f"{wire}={value}: {guard.reason}"


def warning(wire: str, value: str, root: str, served: Set[str]) -> str | None:
    """What to say of a key that has no effect; None where it is `served`. `root`: of the store."""
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
    """Raise `ConfigError` for keys of a command line that no broker knows. In a file they may be those of a release to
    come, and are warned of; who types one means something here and now."""
    known = served | HARMLESS.keys() | DERIVED_PATHS.keys() | _GUARDS.keys()
    if unknown := [_unknown(wire, served) for wire in given if wire not in known]:
        raise ConfigError("; ".join(unknown))


def _unknown(wire: str, served: Set[str], consequence: str = "") -> str:
    close = nearest(wire, served | HARMLESS.keys())
    return f"unknown key {wire}{consequence}" + (f": did you mean {close}?" if close else "")
