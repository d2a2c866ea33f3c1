//! SQL92 filters on random text, expressions and messages.
//!
//! Goal: no text or message makes the filter panic, and the result does not depend on how an expression is written.
//! Method: proptest, with a second evaluator that works on the tree instead of the text.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use rmqpy::message::sql::SqlFilter;

/// Encodes properties.
fn stored(entries: &[(&str, String)]) -> Vec<u8> {
    entries.iter().flat_map(|(name, value)| format!("{name}\u{1}{value}\u{2}").into_bytes()).collect()
}

/// A boolean expression, and its value in three-valued logic.
#[derive(Clone, Debug)]
enum Logic {
    /// A leaf that is true, false or unknown.
    Leaf(Option<bool>),
    Not(Box<Logic>),
    And(Box<Logic>, Box<Logic>),
    Or(Box<Logic>, Box<Logic>),
    IsNull(Box<Logic>),
}

impl Logic {
    fn text(&self) -> String {
        match self {
            Self::Leaf(Some(true)) => "a = 'x'".into(),
            Self::Leaf(Some(false)) => "a = 'y'".into(),
            Self::Leaf(None) => "missing > 5".into(),
            Self::Not(one) => format!("NOT ({})", one.text()),
            Self::And(left, right) => format!("({}) and ({})", left.text(), right.text()),
            Self::Or(left, right) => format!("({}) OR ({})", left.text(), right.text()),
            Self::IsNull(one) => format!("({}) IS NULL", one.text()),
        }
    }

    fn value(&self) -> Option<bool> {
        match self {
            Self::Leaf(value) => *value,
            Self::Not(one) => one.value().map(|value| !value),
            Self::And(left, right) => match (left.value(), right.value()) {
                (Some(false), _) | (_, Some(false)) => Some(false),
                (Some(true), Some(true)) => Some(true),
                _ => None,
            },
            Self::Or(left, right) => match (left.value(), right.value()) {
                (Some(true), _) | (_, Some(true)) => Some(true),
                (Some(false), Some(false)) => Some(false),
                _ => None,
            },
            Self::IsNull(one) => Some(one.value().is_none()),
        }
    }
}

fn logic() -> impl Strategy<Value = Logic> {
    let leaf = select(vec![Some(true), Some(false), None]).prop_map(Logic::Leaf);
    leaf.prop_recursive(6, 32, 2, |inner| {
        let one = || inner.clone().prop_map(Box::new);
        prop_oneof![
            one().prop_map(Logic::Not),
            one().prop_map(Logic::IsNull),
            (one(), one()).prop_map(|(left, right)| Logic::And(left, right)),
            (one(), one()).prop_map(|(left, right)| Logic::Or(left, right)),
        ]
    })
}

/// Words and operators of the language, so that many texts are nearly expressions.
fn words() -> impl Strategy<Value = String> {
    let words = [
        "a",
        "b",
        "5",
        "2.5",
        "3000000000",
        "'x'",
        "''",
        "'5'",
        "AND",
        "OR",
        "NOT",
        "IS",
        "NULL",
        "IN",
        "BETWEEN",
        "CONTAINS",
        "STARTSWITH",
        "ENDSWITH",
        "TRUE",
        "FALSE",
        "=",
        "<>",
        "<",
        "<=",
        ">",
        ">=",
        "+",
        "-",
        "(",
        ")",
        ",",
        "--",
        "/*",
        "*/",
        "\n",
        "'",
        ".",
        "é",
    ];
    vec(select(words.to_vec()), 0..40).prop_map(|words| words.join(" "))
}

fn values() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let value = prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        "[ -~é]{1,12}",
        select(vec!["true", "FALSE", "NaN", "-Infinity", " 5 ", "1e5"]).prop_map(str::to_owned),
    ];
    vec((select(vec!["a", "b"]), value), 0..4)
}

proptest! {
    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC{0,200}", properties in vec(any::<u8>(), 0..200)) {
        for is_strict in [true, false] {
            if let Ok(filter) = SqlFilter::parse(&text, is_strict) {
                let _ = filter.matches(&properties);
            }
        }
    }

    #[test]
    fn a_valid_expression_means_the_same_strict_or_lenient(
        text in words(),
        values in values(),
    ) {
        let properties = stored(&values);
        if let Ok(strict) = SqlFilter::parse(&text, true) {
            let lenient = SqlFilter::parse(&text, false).unwrap();
            prop_assert_eq!(strict.matches(&properties), lenient.matches(&properties), "{}", text);
        }
    }

    #[test]
    fn logic_is_that_of_three_values(logic in logic()) {
        let properties = stored(&[("a", "x".to_owned())]);
        let filter = SqlFilter::parse(&logic.text(), true).unwrap();
        prop_assert_eq!(filter.matches(&properties), logic.value() == Some(true), "{}", logic.text());
    }

    #[test]
    fn numbers_compare_as_numbers(left in any::<i32>(), right in 0..i32::MAX) {
        let properties = stored(&[("a", left.to_string())]);
        for (sign, expected) in [
            ("<", left < right),
            ("<=", left <= right),
            (">", left > right),
            (">=", left >= right),
            ("=", left == right),
            ("<>", left != right),
        ] {
            for text in [format!("a {sign} {right}"), format!("a {sign} {right}.0"), format!("a {sign} - -{right}")] {
                prop_assert_eq!(SqlFilter::parse(&text, true).is_ok_and(|one| one.matches(&properties)),
                    expected && (right != 0 || !text.ends_with(".0")), "{} of {}", text, left);
            }
        }
    }
}
