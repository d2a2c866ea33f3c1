//! Codes: wire numbers that native code needs by name.
//!
//! Python owns the table of request codes (`protocol/codes.py`). Listed here are the requests served natively, the
//! response codes native code sends or checks, the bits of `flag`, and the language names. A test compares both
//! tables.

/// This release in the numbering of the Java clients: 5.5.0. Every frame carries it. Java clients refuse SQL92 pulls
/// from a peer that reports less than 232 in its heartbeat response.
pub const VERSION: i32 = 513;

/// First client release (3.4.9) that sends a meaningful retry limit.
pub(crate) const RECONSUME_MAX_SINCE: i32 = 121;

/// Bits of the header field `flag`.
pub mod flag {
    /// A response; the receiver of this frame chose its opaque.
    pub const RESPONSE: i32 = 1;
    /// A request that must not be answered, not even with an error.
    pub const ONEWAY: i32 = 2;
}

/// Requests served without Python.
pub mod request {
    /// One message, long field names; a batch when `batch` says so.
    pub const SEND_MESSAGE: i32 = 10;
    /// Pull from one queue.
    pub const PULL_MESSAGE: i32 = 11;
    pub(crate) const QUERY_CONSUMER_OFFSET: i32 = 14;
    pub(crate) const UPDATE_CONSUMER_OFFSET: i32 = 15;
    /// Client registration.
    pub const HEART_BEAT: i32 = 34;
    pub(crate) const CONSUMER_SEND_MSG_BACK: i32 = 36;
    pub(crate) const END_TRANSACTION: i32 = 37;
    pub(crate) const REGISTER_BROKER: i32 = 103;
    /// One message or a batch, one-letter field names.
    pub const SEND_MESSAGE_V2: i32 = 310;
    /// A batch, one-letter field names.
    pub(crate) const SEND_BATCH_MESSAGE: i32 = 320;
    /// A reply to a client, one-letter field names.
    pub(crate) const SEND_REPLY_MESSAGE_V2: i32 = 325;
    /// From a broker to a client: the reply to one of its requests.
    pub(crate) const PUSH_REPLY_MESSAGE_TO_CLIENT: i32 = 326;
    /// Pull from one queue, by a lite pull consumer.
    pub(crate) const LITE_PULL_MESSAGE: i32 = 361;
    /// Recall a timed message.
    pub(crate) const RECALL_MESSAGE: i32 = 370;
    /// Messages for one consumer, hidden from the others of its group.
    pub(crate) const POP_MESSAGE: i32 = 200_050;
    pub(crate) const ACK_MESSAGE: i32 = 200_051;
    /// Messages that a pop would give, left where they are.
    pub(crate) const PEEK_MESSAGE: i32 = 200_052;
    pub(crate) const CHANGE_MESSAGE_INVISIBLETIME: i32 = 200_053;
    /// Whether a pop would give messages; waits for one.
    pub(crate) const NOTIFICATION: i32 = 200_054;
    /// The number of pops that wait.
    pub(crate) const POLLING_INFO: i32 = 200_055;
    /// Messages of the lite topics that a client has subscribed to.
    pub(crate) const POP_LITE_MESSAGE: i32 = 200_070;
    pub(crate) const BATCH_ACK_MESSAGE: i32 = 200_151;
}

/// Response codes, named as in Apache's code.
#[allow(missing_docs, reason = "the names are self-explanatory")]
pub mod response {
    pub const SUCCESS: i32 = 0;
    pub(crate) const SYSTEM_ERROR: i32 = 1;
    pub const SYSTEM_BUSY: i32 = 2;
    pub const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
    pub(crate) const FLUSH_DISK_TIMEOUT: i32 = 10;
    pub(crate) const SLAVE_NOT_AVAILABLE: i32 = 11;
    pub(crate) const FLUSH_SLAVE_TIMEOUT: i32 = 12;
    pub(crate) const MESSAGE_ILLEGAL: i32 = 13;
    pub(crate) const SERVICE_NOT_AVAILABLE: i32 = 14;
    pub(crate) const NO_PERMISSION: i32 = 16;
    pub const TOPIC_NOT_EXIST: i32 = 17;
    pub(crate) const PULL_NOT_FOUND: i32 = 19;
    pub(crate) const PULL_RETRY_IMMEDIATELY: i32 = 20;
    pub(crate) const PULL_OFFSET_MOVED: i32 = 21;
    pub(crate) const QUERY_NOT_FOUND: i32 = 22;
    pub(crate) const SUBSCRIPTION_PARSE_FAILED: i32 = 23;
    pub(crate) const SUBSCRIPTION_NOT_EXIST: i32 = 24;
    pub(crate) const SUBSCRIPTION_NOT_LATEST: i32 = 25;
    pub(crate) const SUBSCRIPTION_GROUP_NOT_EXIST: i32 = 26;
    pub(crate) const FILTER_DATA_NOT_EXIST: i32 = 27;
    pub(crate) const INVALID_PARAMETER: i32 = 29;
    pub(crate) const NO_MESSAGE: i32 = 208;
    pub(crate) const POLLING_FULL: i32 = 209;
    pub(crate) const POLLING_TIMEOUT: i32 = 210;
    pub(crate) const NOT_LEADER_FOR_QUEUE: i32 = 501;
    pub(crate) const ILLEGAL_OPERATION: i32 = 604;
    pub(crate) const LMQ_QUOTA_EXCEEDED: i32 = 2017;
    pub(crate) const LITE_SUBSCRIPTION_QUOTA_EXCEEDED: i32 = 2018;
}

/// Implementation languages that a header may name.
#[allow(missing_docs, reason = "a list of languages explains itself")]
pub mod language {
    pub const JAVA: u8 = 0;
    pub(crate) const PYTHON: u8 = 3;
    /// The language rmqpy's servers report; every client release knows it.
    pub(crate) const OTHER: u8 = 7;

    /// Names by code; JSON headers carry the name, binary ones the code.
    pub(crate) const NAMES: [&str; 14] = [
        "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
        "RUST", "NODE_JS",
    ];

    /// Returns the name of `code`, or `OTHER` for an unknown code.
    #[must_use]
    pub fn name(code: u8) -> &'static str {
        NAMES.get(usize::from(code)).copied().unwrap_or("OTHER")
    }

    /// Returns the code of a language name in any case, or [`OTHER`] for an unknown name.
    pub(crate) fn from_name(name: &str) -> u8 {
        let position = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
        position.and_then(|code| u8::try_from(code).ok()).unwrap_or(OTHER)
    }
}
