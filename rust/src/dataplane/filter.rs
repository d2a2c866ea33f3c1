//! Filter: what a pull lets through, by the tags of messages or by their properties.
//!
//! Tags are decided by the entries of a queue. Properties stand in the records alone: a read looks at each, and how much
//! of that one pull may cost has a bound. Where it is reached, the pull is answered with what it has, and goes on with
//! the next one.
//!
//! Threads: compiled wherever a subscription is read, used on I/O threads and on that for cold reads.

use crate::message::sql::{SqlError, SqlFilter};
use crate::message::tag::{TagCodes, TooManyTags};
use crate::store::ReadFilter;

/// What the evaluations of one read may cost: see `SqlFilter::cost`. A simple expression looks at all messages of a read
/// for a fifth of it.
const READ_COST_MAX: usize = 1 << 20;

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

    /// Has `read` read through this filter.
    pub(super) fn read<T>(&self, read: impl FnOnce(&mut ReadFilter<'_>) -> T) -> T {
        match self {
            Self::Tags(codes) => read(&mut ReadFilter::Codes(&mut |tags_code| codes.matches(tags_code))),
            Self::Sql(filter) => {
                let mut spent = 0;
                read(&mut ReadFilter::Properties(&mut |properties| {
                    if spent >= READ_COST_MAX {
                        return None;
                    }
                    spent += filter.cost(properties.len());
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
