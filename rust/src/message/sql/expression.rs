//! Expression: the tree of a filter, and its evaluation for one message.

use std::cmp::Ordering;

use memchr::memmem::Finder;

use super::number;

/// Values of an expression's properties, by the index of the name.
pub(super) type Values<'v> = [Option<&'v [u8]>];

/// A value that cannot be converted to the type of the other operand. The message then does not match at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Unreadable;

#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Value<'v> {
    /// Unknown.
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(&'v [u8]),
}

impl Value<'_> {
    fn is_number(self) -> bool {
        matches!(self, Self::Int(_) | Self::Long(_) | Self::Double(_))
    }
}

/// A literal.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Constant {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(Box<str>),
}

impl Constant {
    fn value(&self) -> Value<'_> {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Long(value) => Value::Long(*value),
            Self::Double(value) => Value::Double(*value),
            Self::Text(value) => Value::Text(value.as_bytes()),
        }
    }

    pub(super) fn is_number(&self) -> bool {
        self.value().is_number()
    }

    /// Returns whether both are numbers and this one is less than or equal to the other.
    pub(super) fn is_up_to(&self, other: &Self) -> bool {
        let are_numbers = self.is_number() && other.is_number();
        are_numbers && order(self.value(), other.value()).is_ok_and(Ordering::is_le)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

impl Comparison {
    fn holds(self, ordering: Ordering) -> bool {
        match self {
            Self::Less => ordering.is_lt(),
            Self::LessOrEqual => ordering.is_le(),
            Self::Greater => ordering.is_gt(),
            Self::GreaterOrEqual => ordering.is_ge(),
        }
    }
}

/// A text to find in another, and where.
#[derive(Debug)]
pub(super) enum Part {
    Inside(Box<Finder<'static>>),
    Begin(Box<str>),
    End(Box<str>),
}

impl Part {
    fn is_of(&self, text: &[u8]) -> bool {
        match self {
            Self::Inside(finder) => finder.find(text).is_some(),
            Self::Begin(part) => text.starts_with(part.as_bytes()),
            Self::End(part) => text.ends_with(part.as_bytes()),
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Inside(finder) => finder.needle().is_empty(),
            Self::Begin(part) | Self::End(part) => part.is_empty(),
        }
    }
}

#[derive(Debug)]
pub(super) enum Node {
    /// A property, by the index of its name.
    Property(usize),
    Constant(Constant),
    Negated(Box<Node>),
    Not(Box<Node>),
    /// A property used as a boolean. Its text is not a boolean, so an existing property is false.
    Bare(usize),
    /// At least two, from left to right.
    And(Vec<Node>),
    Or(Vec<Node>),
    Equal(Box<[Node; 2]>),
    Compared(Comparison, Box<[Node; 2]>),
    IsNull(Box<Node>),
    /// A property that is, or is not, one of these sorted values.
    In {
        property: usize,
        texts: Box<[Box<str>]>,
        is_negated: bool,
    },
    Has {
        text: Box<Node>,
        part: Part,
        is_negated: bool,
    },
}

impl Node {
    /// Returns whether it yields a boolean or unknown.
    pub(super) fn is_boolean(&self) -> bool {
        match self {
            Self::Property(_) | Self::Negated(_) => false,
            Self::Constant(constant) => matches!(constant, Constant::Null | Constant::Bool(_)),
            _ => true,
        }
    }

    pub(super) fn evaluate<'v>(&'v self, values: &Values<'v>) -> Result<Value<'v>, Unreadable> {
        let boolean = |value| Ok(Value::Bool(value));
        match self {
            Self::Property(at) => Ok(property(values, *at).map_or(Value::Null, Value::Text)),
            Self::Constant(constant) => Ok(constant.value()),
            Self::Negated(node) => Ok(match node.evaluate(values)? {
                Value::Int(value) => Value::Int(value.wrapping_neg()),
                Value::Long(value) => Value::Long(value.wrapping_neg()),
                Value::Double(value) => Value::Double(-value),
                Value::Null | Value::Bool(_) | Value::Text(_) => Value::Null,
            }),
            Self::Not(node) => Ok(match node.evaluate(values)? {
                Value::Bool(value) => Value::Bool(!value),
                _ => Value::Null,
            }),
            Self::Bare(at) => Ok(property(values, *at).map_or(Value::Null, |_| Value::Bool(false))),
            Self::And(nodes) => all(nodes, values, false),
            Self::Or(nodes) => all(nodes, values, true),
            Self::Equal(sides) => equal(sides[0].evaluate(values)?, sides[1].evaluate(values)?),
            Self::Compared(comparison, sides) => {
                let left = sides[0].evaluate(values)?;
                if left == Value::Null {
                    return Ok(Value::Null);
                }
                let right = sides[1].evaluate(values)?;
                if right == Value::Null {
                    return Ok(Value::Null);
                }
                boolean(comparison.holds(order(left, right)?))
            }
            Self::IsNull(node) => boolean(node.evaluate(values)? == Value::Null),
            Self::In { property: at, texts, is_negated } => {
                Ok(property(values, *at).map_or(Value::Null, |text| {
                    let is_in = texts.binary_search_by(|own| own.as_bytes().cmp(text)).is_ok();
                    Value::Bool(is_in != *is_negated)
                }))
            }
            Self::Has { text, part, is_negated } => boolean(match text.evaluate(values)? {
                Value::Text(text) if !part.is_empty() => part.is_of(text) != *is_negated,
                _ => false,
            }),
        }
    }
}

fn property<'v>(values: &Values<'v>, at: usize) -> Option<&'v [u8]> {
    values.get(at).copied().flatten()
}

/// Evaluates AND, or OR when `deciding` is true: the first deciding value, else unknown if any operand is unknown.
fn all<'v>(nodes: &'v [Node], values: &Values<'v>, deciding: bool) -> Result<Value<'v>, Unreadable> {
    let mut result = Value::Bool(!deciding);
    for node in nodes {
        match node.evaluate(values)? {
            Value::Bool(value) if value == deciding => return Ok(Value::Bool(deciding)),
            Value::Bool(_) => {}
            _ => result = Value::Null,
        }
    }
    Ok(result)
}

fn equal<'v>(left: Value<'v>, right: Value<'v>) -> Result<Value<'v>, Unreadable> {
    Ok(match (left, right) {
        (Value::Null, Value::Null) => Value::Bool(true),
        (Value::Null, _) => Value::Null,
        (_, Value::Null) => Value::Bool(false),
        (Value::Text(left), Value::Text(right)) => Value::Bool(left == right),
        // A number is not a boolean; a text is converted only on the left side.
        (Value::Bool(_), right) if right.is_number() => Value::Bool(false),
        (left, Value::Bool(_)) if left.is_number() => Value::Bool(false),
        (left, right) => Value::Bool(order(left, right)?.is_eq()),
    })
}

/// Compares two known values; a property is converted to the type of the other one.
fn order(left: Value<'_>, right: Value<'_>) -> Result<Ordering, Unreadable> {
    let int = |text| number::integer::<i32>(text).ok_or(Unreadable);
    let long = |text| number::integer::<i64>(text).ok_or(Unreadable);
    let double = |text| number::double(text).ok_or(Unreadable);
    Ok(match (left, right) {
        (Value::Int(left), Value::Int(right)) => left.cmp(&right),
        (Value::Int(left), Value::Long(right)) => i64::from(left).cmp(&right),
        (Value::Long(left), Value::Int(right)) => left.cmp(&i64::from(right)),
        (Value::Long(left), Value::Long(right)) => left.cmp(&right),
        (Value::Double(left), Value::Double(right)) => by_size(left, right),
        (Value::Double(left), Value::Int(right)) => by_size(left, right.into()),
        (Value::Int(left), Value::Double(right)) => by_size(left.into(), right),
        (Value::Double(left), Value::Long(right)) => by_size(left, right as f64),
        (Value::Long(left), Value::Double(right)) => by_size(left as f64, right),
        (Value::Text(left), Value::Int(right)) => int(left)?.cmp(&right),
        (Value::Int(left), Value::Text(right)) => left.cmp(&int(right)?),
        (Value::Text(left), Value::Long(right)) => long(left)?.cmp(&right),
        (Value::Long(left), Value::Text(right)) => left.cmp(&long(right)?),
        (Value::Text(left), Value::Double(right)) => by_size(double(left)?, right),
        (Value::Double(left), Value::Text(right)) => by_size(left, double(right)?),
        (Value::Text(left), Value::Text(right)) => by_size(double(left)?, double(right)?),
        (Value::Bool(left), Value::Bool(right)) => left.cmp(&right),
        (Value::Text(left), Value::Bool(right)) => left.eq_ignore_ascii_case(b"true").cmp(&right),
        _ => return Err(Unreadable),
    })
}

/// Java's order: NaN equals itself and is the largest, and -0.0 is less than 0.0.
fn by_size(left: f64, right: f64) -> Ordering {
    let without_sign = |value: f64| if value.is_nan() { f64::NAN } else { value };
    without_sign(left).total_cmp(&without_sign(right))
}
