//! The numbers on the wire that native code needs by name.
//!
//! The table of request codes belongs to Python (`protocol/codes.py`); here are only the requests answered without
//! it, every response code, the bits of `flag`, and the names of implementation languages. A test compares both.

/// This process's release in the numbering of the Java clients: 5.5.0. Every frame carries it; Java clients refuse
/// SQL92 pulls from a peer whose heartbeat answer says less than 232.
pub const VERSION: i32 = 513;

/// Release of the first client (3.4.9) whose limit of retries is meant.
pub const RECONSUME_MAX_SINCE: i32 = 121;

/// Bits of the header field `flag`.
pub mod flag {
    /// A response; its opaque belongs to the receiver of this frame.
    pub const RESPONSE: i32 = 1;
    /// A request that must never be answered, not even with an error.
    pub const ONEWAY: i32 = 2;
}

/// Requests served without Python.
pub mod request {
    /// One message, long field names; a batch when `batch` says so.
    pub const SEND_MESSAGE: i32 = 10;
    /// Pull from one queue.
    pub const PULL_MESSAGE: i32 = 11;
    /// Committed offset of a group in one queue.
    pub const QUERY_CONSUMER_OFFSET: i32 = 14;
    /// Commit an offset; one-way as a rule.
    pub const UPDATE_CONSUMER_OFFSET: i32 = 15;
    /// Client registration.
    pub const HEART_BEAT: i32 = 34;
    /// A consumer returns a message it could not process.
    pub const CONSUMER_SEND_MSG_BACK: i32 = 36;
    /// Commit or roll back a half message; one-way as a rule.
    pub const END_TRANSACTION: i32 = 37;
    /// A broker tells a name server what it has.
    pub const REGISTER_BROKER: i32 = 103;
    /// One message or a batch, one-letter field names.
    pub const SEND_MESSAGE_V2: i32 = 310;
    /// A batch, one-letter field names.
    pub const SEND_BATCH_MESSAGE: i32 = 320;
    /// Pull from one queue, asked for by a lite pull consumer.
    pub const LITE_PULL_MESSAGE: i32 = 361;
    /// Take messages for a while.
    pub const POP_MESSAGE: i32 = 200_050;
    /// Acknowledge one popped message.
    pub const ACK_MESSAGE: i32 = 200_051;
    /// Hide a popped message for longer.
    pub const CHANGE_MESSAGE_INVISIBLETIME: i32 = 200_053;
    /// Wait for messages without taking them.
    pub const NOTIFICATION: i32 = 200_054;
    /// Acknowledge many popped messages.
    pub const BATCH_ACK_MESSAGE: i32 = 200_151;
}

/// Answers, under the names of the original.
#[allow(missing_docs, reason = "the name is all there is to say")]
pub mod response {
    pub const SUCCESS: i32 = 0;
    pub const SYSTEM_ERROR: i32 = 1;
    pub const SYSTEM_BUSY: i32 = 2;
    pub const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
    pub const TRANSACTION_FAILED: i32 = 4;
    pub const FLUSH_DISK_TIMEOUT: i32 = 10;
    pub const SLAVE_NOT_AVAILABLE: i32 = 11;
    pub const FLUSH_SLAVE_TIMEOUT: i32 = 12;
    pub const MESSAGE_ILLEGAL: i32 = 13;
    pub const SERVICE_NOT_AVAILABLE: i32 = 14;
    pub const VERSION_NOT_SUPPORTED: i32 = 15;
    pub const NO_PERMISSION: i32 = 16;
    pub const TOPIC_NOT_EXIST: i32 = 17;
    pub const TOPIC_EXIST_ALREADY: i32 = 18;
    pub const PULL_NOT_FOUND: i32 = 19;
    pub const PULL_RETRY_IMMEDIATELY: i32 = 20;
    pub const PULL_OFFSET_MOVED: i32 = 21;
    pub const QUERY_NOT_FOUND: i32 = 22;
    pub const SUBSCRIPTION_PARSE_FAILED: i32 = 23;
    pub const SUBSCRIPTION_NOT_EXIST: i32 = 24;
    pub const SUBSCRIPTION_NOT_LATEST: i32 = 25;
    pub const SUBSCRIPTION_GROUP_NOT_EXIST: i32 = 26;
    pub const FILTER_DATA_NOT_EXIST: i32 = 27;
    pub const FILTER_DATA_NOT_LATEST: i32 = 28;
    pub const INVALID_PARAMETER: i32 = 29;
    pub const TRANSACTION_SHOULD_COMMIT: i32 = 200;
    pub const TRANSACTION_SHOULD_ROLLBACK: i32 = 201;
    pub const TRANSACTION_STATE_UNKNOW: i32 = 202;
    pub const TRANSACTION_STATE_GROUP_WRONG: i32 = 203;
    pub const NO_BUYER_ID: i32 = 204;
    pub const NOT_IN_CURRENT_UNIT: i32 = 205;
    pub const CONSUMER_NOT_ONLINE: i32 = 206;
    pub const CONSUME_MSG_TIMEOUT: i32 = 207;
    pub const NO_MESSAGE: i32 = 208;
    pub const POLLING_FULL: i32 = 209;
    pub const POLLING_TIMEOUT: i32 = 210;
    pub const BROKER_NOT_EXIST: i32 = 211;
    pub const BROKER_DISPATCH_NOT_COMPLETE: i32 = 212;
    pub const BROADCAST_CONSUMPTION: i32 = 213;
    pub const FLOW_CONTROL: i32 = 215;
    pub const NOT_LEADER_FOR_QUEUE: i32 = 501;
    pub const ILLEGAL_OPERATION: i32 = 604;
    pub const GO_AWAY: i32 = 1500;
    pub const LMQ_QUOTA_EXCEEDED: i32 = 2017;
    pub const LITE_SUBSCRIPTION_QUOTA_EXCEEDED: i32 = 2018;
}

/// Implementation languages a header may name.
#[allow(missing_docs, reason = "a list of languages explains itself")]
pub mod language {
    pub const JAVA: u8 = 0;
    pub const CPP: u8 = 1;
    pub const PYTHON: u8 = 3;
    /// What a server of ours says: every release of every client knows it.
    pub const OTHER: u8 = 7;
    pub const GO: u8 = 9;

    /// Names by code; JSON headers carry the name, binary ones the code.
    pub const NAMES: [&str; 14] = [
        "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP", "OMS",
        "RUST", "NODE_JS",
    ];

    /// Name of `code`; `OTHER` for a code that is not in the list.
    #[must_use]
    pub fn name(code: u8) -> &'static str {
        NAMES.get(usize::from(code)).copied().unwrap_or("OTHER")
    }

    /// Code of a language name in any case; [`OTHER`] for a name that is not in the list.
    #[must_use]
    pub fn from_name(name: &str) -> u8 {
        let position = NAMES.iter().position(|known| known.eq_ignore_ascii_case(name));
        position.and_then(|code| u8::try_from(code).ok()).unwrap_or(OTHER)
    }
}
