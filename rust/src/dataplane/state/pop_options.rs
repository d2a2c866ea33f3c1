//! Pop options: the settings of POP, fixed for the life of the process.

/// The settings of POP.
#[derive(Debug, Clone, Copy)]
pub struct PopOptions {
    /// Requests of one group and topic that may wait for a message (`popPollingSize`).
    pub parked_per_group_max: usize,
    /// The same in the whole broker (`maxPopPollingSize`).
    pub parked_max: usize,
    /// Requests, of 100, that read the retry topic first (`popFromRetryProbability`).
    pub retry_first_percent: u32,
    /// The same of requests that read by priority (`popFromRetryProbabilityForPriority`).
    pub retry_first_percent_by_priority: u32,
    /// Whether a larger priority is more urgent (`priorityOrderAsc`).
    pub is_larger_more_urgent: bool,
    /// Whether a retry topic has as many queues as its topic, so that redelivered messages keep their priority
    /// (`useSeparateRetryQueue`).
    pub keeps_retry_queues: bool,
    /// Whether messages are redelivered through retry topics of the second kind (`enableRetryTopicV2`).
    pub is_retry_v2: bool,
    /// Whether those of the first kind are read, too (`retrieveMessageFromPopRetryTopicV1`).
    pub reads_retry_v1: bool,
    /// Whether redelivered messages keep the name of the retry topic (`popResponseReturnActualRetryTopic`).
    pub shows_retry_topic: bool,
    /// Maximum messages in flight of a queue and group, beyond which the group gets no more; `None` for any number
    /// (`popInflightMessageThreshold`).
    pub in_flight_max: Option<u64>,
    /// Whether a message becomes a dead letter after the group's `retryMaxTimes` (`popDeadLetterEnable`).
    pub has_dead_letters: bool,
    /// Subscriptions to lite topics, of all consumers (`maxLiteSubscriptionCount`).
    pub lite_subscriptions_max: usize,
}

impl Default for PopOptions {
    fn default() -> Self {
        Self {
            parked_per_group_max: 1_024,
            parked_max: 100_000,
            retry_first_percent: 20,
            retry_first_percent_by_priority: 0,
            is_larger_more_urgent: true,
            keeps_retry_queues: false,
            is_retry_v2: false,
            reads_retry_v1: true,
            shows_retry_topic: false,
            in_flight_max: None,
            has_dead_letters: true,
            lite_subscriptions_max: 100_000,
        }
    }
}
