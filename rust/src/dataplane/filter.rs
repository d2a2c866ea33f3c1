//! Filter: what a pull lets through, by the tags of messages or by their properties.
//!
//! Tags are decided by the entries of a queue. Properties stand in the records alone: a read looks at each, and how much
//! of that one pull may cost has a bound. Where it is reached, the pull is answered with what it has, and goes on with
//! the next one.
//!
//! Threads: compiled wherever a subscription is read, used on I/O threads and on that for cold reads.

use std::sync::{Arc, Weak};

use hashbrown::HashMap;
use parking_lot::Mutex;

use crate::message::sql::{SqlError, SqlFilter};
use crate::message::tag::{TagCodes, TooManyTags};
use crate::remoting::TURN_FRAMES_MAX;
use crate::store::ReadFilter;

/// What the evaluations of one read may cost: see `SqlFilter::cost`. A simple expression looks at all messages of a read
/// for a fifth of it.
const READ_COST_MAX: usize = 1 << 20;
/// The part of it that a turn counts as a frame: a turn has the cost of one read.
const FRAME_COST: usize = READ_COST_MAX / TURN_FRAMES_MAX;
/// SQL filters that are shared by all whose expression is the same; others are each their own.
const SHARED_MAX: usize = 256;

/// Whether SQL92 expressions are served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum SqlSupport {
    /// They are refused.
    #[default]
    Off,
    /// Text behind an expression is an error.
    Strict,
    /// Text behind an expression is ignored, as the original does.
    Lenient,
}

#[derive(Debug)]
pub(crate) enum Filter {
    Tags(TagCodes),
    Sql(Box<SqlFilter>),
}

/// Why a subscription is not served.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum UnservedFilter {
    /// Its expression is of an unknown kind.
    Kind,
    TooManyTags,
    /// It is SQL, which is switched off.
    SqlOff,
    Sql(SqlError),
}

/// Whether expressions of this type, which may be left out, name tags.
fn names_tags(expression_type: &str) -> bool {
    expression_type.is_empty() || expression_type == "TAG"
}

fn is_sql(expression_type: &str) -> bool {
    expression_type == "SQL92"
}

/// SQL filters in use, so that equal expressions are one filter, whose look at a message serves all that have it.
#[derive(Debug, Default)]
pub(super) struct SharedFilters {
    known: Mutex<HashMap<Box<str>, Weak<Filter>>>,
}

impl SharedFilters {
    /// The filter of an expression of this type.
    pub(super) fn parse(
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

/// The frames of a turn that evaluations of this cost stand for.
pub(super) fn frames_of(cost: usize) -> usize {
    cost / FRAME_COST
}

impl Filter {
    /// The filter of an expression of this type.
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

    /// Whether it is made from expressions of this type.
    pub(super) fn is_of(&self, expression_type: &str) -> bool {
        match self {
            Self::Tags(_) => names_tags(expression_type),
            Self::Sql(_) => is_sql(expression_type),
        }
    }

    /// Whether a message with this tags code may match; its record decides, where the filter needs that.
    #[inline]
    pub(super) fn may_match(&self, tags_code: i64) -> bool {
        match self {
            Self::Tags(codes) => codes.matches(tags_code),
            Self::Sql(_) => true,
        }
    }

    /// Whether records decide.
    pub(super) fn needs_records(&self) -> bool {
        matches!(self, Self::Sql(_))
    }

    /// Has `read` read through this filter. What that costs is added to `spent`; where that has much already, it looks at
    /// one message.
    pub(super) fn read<T>(&self, spent: &mut usize, read: impl FnOnce(&mut ReadFilter<'_>) -> T) -> T {
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

    /// Memory beyond what every filter has.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Tags(codes) => codes.bytes(),
            Self::Sql(filter) => filter.bytes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_expressions_are_one_filter_while_somebody_has_it() {
        let shared = SharedFilters::default();
        let sql = |expression: &str| shared.parse(SqlSupport::Strict, "SQL92", expression).expect("a filter");
        let (first, again, other) = (sql("a = 1"), sql("a = 1"), sql("a = 2"));
        assert!(Arc::ptr_eq(&first, &again) && !Arc::ptr_eq(&first, &other));
        // What nobody has any more gives way to others, however many there were.
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
    fn a_read_looks_at_one_message_at_least_and_stops_where_the_turn_has_cost_enough() {
        let filter = Filter::parse(SqlSupport::Strict, "SQL92", "a = 1").expect("a filter");
        let looked = |mut spent: usize| {
            filter.read(&mut spent, |read| {
                let ReadFilter::Properties(look) = read else { return 0 };
                (0..10).take_while(|_| look(b"a\x011\x02").is_some()).count()
            })
        };
        assert_eq!((looked(0), looked(READ_COST_MAX)), (10, 1));
        assert_eq!((frames_of(READ_COST_MAX), frames_of(0)), (TURN_FRAMES_MAX, 0));
    }
}
