//! Schedule: the due time of a timed message and its properties while it waits.
//!
//! `TIMER_OUT_MS` is rounded as in Apache's broker, so that it finds the message in the right slot: down to the
//! precision, and one step further for a multiple of it. Delivery by this broker uses the exact millisecond in
//! `TIMER_DELIVER_MS`.

use std::sync::Arc;

use crate::dataplane::delivery::timers::files::{DEFAULT, DELETE, ROLL};
use crate::dataplane::state::rejection::ErrorReply;
use crate::message::properties::{self, name};
use crate::message::topic::TIMER_TOPIC;
use crate::remoting::codes::response;
use crate::store::{ConsumeQueue, Store, TimerOptions};

/// The maximum distance of the exact time from `TIMER_OUT_MS`, for any precision at storing.
const ROUNDING_MS_MAX: i64 = 60_000;

/// The queue in which a message waits, and the properties that it gets.
pub(in crate::dataplane) struct Timing<'a> {
    pub(in crate::dataplane) queue: Arc<ConsumeQueue>,
    /// `TIMER_OUT_MS`, which selects the slot.
    pub(in crate::dataplane) out_ms: i64,
    entries: Vec<(&'static [u8], String)>,
    topic: &'a str,
}

impl Timing<'_> {
    /// Returns the added properties: requested time, time in milliseconds, topic and queue, named as in
    /// Apache's broker.
    pub(in crate::dataplane) fn properties(&self) -> Vec<(&[u8], &[u8])> {
        let entries = self.entries.iter().map(|(name, value)| (*name, value.as_bytes()));
        entries.chain([(name::REAL_TOPIC, self.topic.as_bytes())]).collect()
    }
}

/// Returns the timing of a message for `topic`; `None` if it is due now.
pub(in crate::dataplane) fn timing<'a>(
    store: &Store,
    now_ms: i64,
    properties: &[u8],
    topic: &'a str,
    queue_id: u32,
) -> Result<Option<Timing<'a>>, ErrorReply> {
    let options = store.timer_options();
    if !options.is_enabled {
        let remark = "accurate timer message is not enabled: timerWheelEnable is false";
        return Err(ErrorReply::new(response::SYSTEM_ERROR, remark));
    }
    let Some((asked, value, deliver_ms)) = deliver_ms(properties, now_ms)? else { return Ok(None) };
    if deliver_ms <= now_ms {
        if properties::get(properties, name::TIMER_DELETE_KEY).is_some() {
            return Err(illegal("the recalled message is due already"));
        }
        return Ok(None);
    }
    let delay_sec_max = options.delay_sec_max;
    if deliver_ms.saturating_sub(now_ms)
        > i64::try_from(delay_sec_max).unwrap_or(i64::MAX).saturating_mul(1_000)
    {
        let remark = format!("its delay is longer than timerMaxDelaySec={delay_sec_max} seconds");
        return Err(illegal(&remark));
    }
    let queue = store
        .queue_or_create(TIMER_TOPIC, 0)
        .map_err(|error| ErrorReply::new(response::SERVICE_NOT_AVAILABLE, error.to_string()))?;
    let out_ms = rounded(deliver_ms, options);
    let mut entries = vec![
        (name::TIMER_DELIVER_MS, deliver_ms.to_string()),
        (name::TIMER_OUT_MS, out_ms.to_string()),
        (name::REAL_QUEUE_ID, queue_id.to_string()),
    ];
    if asked != name::TIMER_DELIVER_MS {
        entries.push((asked, value));
    }
    Ok(Some(Timing { queue, out_ms, entries, topic }))
}

/// The property that names the time, its value, and the time.
type Asked = (&'static [u8], String, i64);

/// Returns the due time of a message. The precedence of the properties is that of Apache's broker.
fn deliver_ms(properties: &[u8], now_ms: i64) -> Result<Option<Asked>, ErrorReply> {
    for (name, unit_ms) in [
        (name::TIMER_DELAY_SEC, Some(1_000)),
        (name::TIMER_DELAY_MS, Some(1)),
        (name::TIMER_DELIVER_MS, None),
    ] {
        let Some(value) = properties::get(properties, name) else { continue };
        let Some(number) = number(value) else {
            let (name, value) = (name.escape_ascii(), value.escape_ascii());
            return Err(illegal(&format!("{name} {value} is not a number")));
        };
        let at = unit_ms.map_or(number, |unit_ms: i64| now_ms.saturating_add(number.saturating_mul(unit_ms)));
        return Ok(Some((name, number.to_string(), at)));
    }
    Ok(None)
}

/// Returns `TIMER_OUT_MS` for a due time.
fn rounded(deliver_ms: i64, options: &TimerOptions) -> i64 {
    let precision_ms = i64::try_from(options.precision_ms).unwrap_or(i64::MAX).max(1);
    deliver_ms.saturating_sub(1).div_euclid(precision_ms) * precision_ms
}

fn illegal(why: &str) -> ErrorReply {
    ErrorReply::new(response::MESSAGE_ILLEGAL, format!("the timer message is illegal: {why}"))
}

fn number(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// The next step of a pending message: its time, and the kind of its unit in the timer log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    pub(super) at_ms: i64,
    pub(super) kind: u32,
}

/// Returns the plan of a stored message; `None` if it names no time. The result does not depend on the present time,
/// so that a restart knows from the clock what was done.
pub(super) fn plan(properties: &[u8], stored_ms: i64, options: &TimerOptions) -> Option<Plan> {
    let out_ms = properties::get(properties, name::TIMER_OUT_MS).and_then(number)?;
    let precision_ms = i64::try_from(options.precision_ms).ok()?;
    // A client may have set a delay in seconds and another time.
    let is_recall = properties::get(properties, name::TIMER_DELETE_KEY).is_some();
    let exact = properties::get(properties, name::TIMER_DELIVER_MS).and_then(number);
    // A recall precedes all messages of its slot.
    let exact = if is_recall { Some(out_ms.saturating_add(1)) } else { exact };
    let exact = exact.filter(|at| (1..=ROUNDING_MS_MAX).contains(&at.saturating_sub(out_ms)));
    let due_ms = exact.unwrap_or_else(|| out_ms.saturating_add(precision_ms));
    let window_ms = options.roll_window_ms();
    let kind = if is_recall { DEFAULT | DELETE } else { DEFAULT };
    let beyond_ms = due_ms.saturating_sub(stored_ms).saturating_sub(window_ms);
    if beyond_ms < 0 {
        return Some(Plan { at_ms: due_ms, kind });
    }
    // Avoids a short last stretch.
    let wait_ms = if beyond_ms < window_ms / 3 { window_ms / 2 } else { window_ms };
    Some(Plan { at_ms: stored_ms.saturating_add(wait_ms), kind: kind | ROLL })
}
