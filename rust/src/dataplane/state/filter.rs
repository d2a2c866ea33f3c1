//! Filter: selection of a pull's messages by tags or properties.
//!
//! Tags are compared with the entries of a queue. Properties are only in the records, so a read examines each,
//! within a bound on the cost of a pull. At the bound the pull is answered with the messages so far, and the next
//! pull continues.
//!
//! Threads: compiled on any thread that reads a subscription, used on I/O threads and on the read thread.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::message::sql::{SqlError, SqlFilter};
use crate::message::tag::{TagCodes, TooManyTags};
use crate::store::ReadFilter;

/// Maximum cost of the evaluations of one read, about a third of a millisecond: see `SqlFilter::cost`. A simple
/// expression takes most of it for all messages of a read.
const READ_COST_MAX: usize = 1 << 18;
/// The cost of an ordinary frame, about a microsecond.
const FRAME_COST: usize = 1 << 10;
/// The cost of compiling a byte of an expression.
const COMPILED_BYTE_COST: usize = 16;
/// Maximum number of shared SQL filters; further filters are not shared.
const SHARED_MAX: usize = 256;

/// Whether SQL92 expressions are served, and how strictly.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SqlSupport {
    /// Refused.
    #[default]
    Off,
    /// Text after an expression is an error.
    Strict,
    /// Text after an expression is ignored, as in Apache's broker.
    Lenient,
}

#[derive(Debug)]
pub(crate) enum Filter {
    Tags(TagCodes),
    Sql(Box<SqlFilter>),
}

/// The reason why a subscription is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnservedFilter {
    /// The type of the expression is unknown.
    Kind,
    TooManyTags,
    /// The expression is SQL, which is switched off.
    SqlOff,
    Sql(SqlError),
}

/// Returns whether expressions of this type, which may be missing, are tags.
fn names_tags(expression_type: &str) -> bool {
    expression_type.is_empty() || expression_type == "TAG"
}

fn is_sql(expression_type: &str) -> bool {
    expression_type == "SQL92"
}

/// SQL filters in use. Equal expressions share one, which is evaluated once per message.
#[derive(Debug, Default)]
pub(in crate::dataplane) struct SharedFilters {
    known: Mutex<HashMap<Box<str>, Weak<Filter>>>,
}

impl SharedFilters {
    /// Returns the filter of an expression of this type, shared if possible.
    pub(in crate::dataplane) fn parse(
        &self,
        sql: SqlSupport,
        expression_type: &str,
        expression: &str,
    ) -> Result<Arc<Filter>, UnservedFilter> {
        if !is_sql(expression_type) {
            return Filter::parse(sql, expression_type, expression).map(Arc::new);
        }
        let known =
            self.known.lock().get(expression).and_then(Weak::upgrade).filter(|_| sql != SqlSupport::Off);
        if let Some(filter) = known {
            return Ok(filter);
        }
        let filter = Arc::new(Filter::parse(sql, expression_type, expression)?);
        let mut known = self.known.lock();
        if known.len() >= SHARED_MAX {
            known.retain(|_, filter| filter.strong_count() > 0);
        }
        if known.len() < SHARED_MAX {
            known.insert(expression.into(), Arc::downgrade(&filter));
        }
        Ok(filter)
    }
}

/// Returns the cost of compiling an expression, or of refusing it.
pub(in crate::dataplane) fn compile_cost(expression: &str) -> usize {
    expression.len() * COMPILED_BYTE_COST
}

/// Returns the number of frames that a turn counts for a cost.
pub(in crate::dataplane) fn frames_of(cost: usize) -> usize {
    cost / FRAME_COST
}

impl Filter {
    /// Returns the filter of an expression of this type.
    pub(crate) fn parse(
        sql: SqlSupport,
        expression_type: &str,
        expression: &str,
    ) -> Result<Self, UnservedFilter> {
        if names_tags(expression_type) {
            let codes = TagCodes::parse(expression);
            return codes.map(Self::Tags).map_err(|TooManyTags| UnservedFilter::TooManyTags);
        }
        match sql {
            _ if !is_sql(expression_type) => Err(UnservedFilter::Kind),
            SqlSupport::Off => Err(UnservedFilter::SqlOff),
            mode => SqlFilter::parse(expression, mode == SqlSupport::Strict)
                .map(|filter| Self::Sql(Box::new(filter)))
                .map_err(UnservedFilter::Sql),
        }
    }

    /// Returns whether expressions of this type yield this kind of filter.
    pub(in crate::dataplane) fn is_of(&self, expression_type: &str) -> bool {
        match self {
            Self::Tags(_) => names_tags(expression_type),
            Self::Sql(_) => is_sql(expression_type),
        }
    }

    /// Returns whether a message with this tags code may match. If the filter needs records, the record decides.
    #[inline]
    pub(in crate::dataplane) fn may_match(&self, tags_code: i64) -> bool {
        match self {
            Self::Tags(codes) => codes.matches(tags_code),
            Self::Sql(_) => true,
        }
    }

    pub(in crate::dataplane) fn needs_records(&self) -> bool {
        matches!(self, Self::Sql(_))
    }

    /// Calls `read` with this filter and adds the cost to `spent`. If `spent` is high already, the filter examines
    /// only one message.
    pub(in crate::dataplane) fn read<T>(
        &self,
        spent: &mut usize,
        read: impl FnOnce(&mut ReadFilter<'_>) -> T,
    ) -> T {
        match self {
            Self::Tags(codes) => read(&mut ReadFilter::Codes(&mut |tags_code| codes.matches(tags_code))),
            Self::Sql(filter) => {
                let mut is_first = true;
                read(&mut ReadFilter::Properties(&mut |properties| {
                    if *spent >= READ_COST_MAX && !std::mem::take(&mut is_first) {
                        return None;
                    }
                    is_first = false;
                    *spent += filter.cost(properties.len());
                    Some(filter.matches(properties))
                }))
            }
        }
    }

    /// Returns the memory beyond the fixed size of a filter.
    pub(in crate::dataplane) fn bytes(&self) -> usize {
        match self {
            Self::Tags(codes) => codes.bytes(),
            Self::Sql(filter) => filter.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remoting::TURN_FRAMES_MAX;

    #[test]
    fn equal_expressions_share_a_filter_while_it_is_in_use() {
        let shared = SharedFilters::default();
        let sql = |expression: &str| shared.parse(SqlSupport::Strict, "SQL92", expression).expect("a filter");
        let (first, again, other) = (sql("a = 1"), sql("a = 1"), sql("a = 2"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        // Unused filters are evicted.
        for number in 0..2 * SHARED_MAX {
            drop(sql(&format!("b = {number}")));
        }
        let kept = sql("c = 1");
        assert!(Arc::ptr_eq(&kept, &sql("c = 1")) && Arc::ptr_eq(&first, &sql("a = 1")));
        assert!(shared.known.lock().len() <= SHARED_MAX);
        assert!(shared.parse(SqlSupport::Strict, "SQL92", "a =").is_err());
        assert!(shared.parse(SqlSupport::Off, "SQL92", "a = 1").is_err());
    }

    #[test]
    fn a_read_examines_at_least_one_message_and_stops_at_the_cost_limit() {
        let filter = Filter::parse(SqlSupport::Strict, "SQL92", "a = 1").expect("a filter");
        let looked = |mut spent: usize| {
            filter.read(&mut spent, |read| {
                let ReadFilter::Properties(look) = read else { return 0 };
                (0..10).take_while(|_| look(b"a\x011\x02").is_some()).count()
            })
        };
        assert_eq!((looked(0), looked(READ_COST_MAX)), (10, 1));
        assert!(frames_of(READ_COST_MAX) > TURN_FRAMES_MAX, "a read uses a turn up");
        assert_eq!(frames_of(compile_cost("*")), 0, "an ordinary pull costs one frame");
    }
}
