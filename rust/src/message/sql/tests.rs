//! SQL tests: one for each rule of the grammar and of evaluation.

use super::error::DEPTH_MAX;
use super::*;

/// Builds properties from `name=value` entries.
fn properties(entries: &[&str]) -> Vec<u8> {
    let entry = |entry: &&str| format!("{}\u{2}", entry.replacen('=', "\u{1}", 1)).into_bytes();
    entries.iter().flat_map(entry).collect()
}

fn filter(text: &str) -> SqlFilter {
    SqlFilter::parse(text, true).unwrap_or_else(|error| panic!("{text}: {error}"))
}

#[track_caller]
fn check(text: &str, entries: &[&str], expected: bool) {
    assert_eq!(filter(text).matches(&properties(entries)), expected, "{text} of {entries:?}");
}

#[track_caller]
fn refused(text: &str) -> String {
    let error = SqlFilter::parse(text, true).expect_err(text);
    assert!(error.at <= text.len(), "{text}: {error}");
    error.to_string()
}

#[test]
fn the_literal_decides_how_a_property_is_read() {
    for (text, value, expected) in [
        ("a > 5", "6", true),
        ("a > 5", "5", false),
        ("a >= 5", "+5", true),
        ("5 < a", "6", true),
        // Not an integer: no match, although 5.5 is greater.
        ("a > 5", "5.5", false),
        ("a = 5", "5.0", false),
        ("a = 5.0", "5", true),
        ("a < 5.5", " 5.25 ", true),
        ("a = 3000000000", "3000000000", true),
        // Beyond 32 bits, compared with a 32-bit literal.
        ("a > 5", "3000000000", false),
        ("a > 5.0", "NaN", true),
        ("a > 5.0", "Infinity", true),
        ("a = TRUE", "tRuE", true),
        ("a = FALSE", "yes", true),
        ("a = 'x'", "x", true),
        ("a = 'X'", "x", false),
        ("a <> 'X'", "x", true),
    ] {
        check(text, &[&format!("a={value}")], expected);
    }
}

#[test]
fn two_properties_are_equal_as_text_and_ordered_as_doubles() {
    check("a = b", &["a=5", "b=5"], true);
    check("a = b", &["a=5", "b=5.0"], false);
    check("a < b", &["a=9", "b=10"], true);
    check("a < b", &["a=x", "b=y"], false);
}

#[test]
fn a_value_that_cannot_be_read_fails_the_whole_evaluation() {
    check("b = 'x' OR a = 5", &["a=no", "b=x"], true);
    check("a = 5 OR b = 'x'", &["a=no", "b=x"], false);
    check("NOT (a = 5)", &["a=no"], false);
    check("b = 'y' AND a = 5 OR TRUE", &["a=no", "b=x"], true);
}

#[test]
fn logic_has_three_values() {
    // Unknown does not match, and neither does its negation.
    check("a = 'x'", &[], false);
    check("NOT (a = 'x')", &[], false);
    check("a <> 'x'", &[], false);
    check("a = 'x' OR b = 'y'", &["b=y"], true);
    check("a = 'x' AND b = 'y'", &["b=y"], false);
    check("NOT (a = 'x' AND b = 'z')", &["b=y"], true);
    check("NOT (a = 'x' OR b = 'z')", &["b=y"], false);
    check("a > 5", &[], false);
    check("5 > a", &[], false);
}

#[test]
fn missing_properties_equal_only_each_other() {
    check("a = b", &[], true);
    check("a = b", &["b=x"], false);
    check("NOT (a = b)", &["b=x"], false);
    check("a = b", &["a=x"], false);
    check("a <> b", &["a=x"], true);
}

#[test]
fn null_is_tested_with_is() {
    check("a IS NULL", &[], true);
    check("a IS NULL", &["a=x"], false);
    check("a is not null", &["a=x"], true);
    check("a IS NOT NULL", &[], false);
    check("(a = 'x') IS NULL", &[], true);
    check("NULL IS NULL", &[], true);
    for text in ["a = NULL", "NULL = a", "a <> NULL"] {
        assert!(refused(text).contains("IS NULL"), "{text}");
    }
    refused("a IS 'x'");
}

#[test]
fn lists_and_ranges_contain_their_values() {
    check("a IN ('x', 'y', 'x')", &["a=y"], true);
    check("a IN ('x', 'y')", &["a=z"], false);
    check("a NOT IN ('x', 'y')", &["a=z"], true);
    check("a NOT IN ('x')", &[], false);
    check("a BETWEEN 5 AND 7", &["a=5"], true);
    check("a BETWEEN 5 AND 7", &["a=7"], true);
    check("a BETWEEN 5 AND 7", &["a=8"], false);
    check("a NOT BETWEEN 5 AND 7", &["a=8"], true);
    check("a NOT BETWEEN 5 AND 7", &["a=6"], false);
    check("a NOT BETWEEN 7 AND 5", &["a=6"], true);
    check("a BETWEEN 1 AND 7.5", &["a=5"], true);
    check("a BETWEEN b AND 7", &["a=5", "b=4"], true);
    check("-5 BETWEEN -7 AND a", &["a=1"], true);
    for text in [
        "a BETWEEN 7 AND 5",
        "a BETWEEN 1 AND 0.5",
        "a BETWEEN 3000000000 AND 7",
        "a BETWEEN 'a' AND 'b'",
        "a NOT BETWEEN 'a' AND 'b'",
        "a BETWEEN NULL AND 5",
        "a NOT BETWEEN NULL AND 5",
        "a BETWEEN 5",
        "5 IN ('x')",
        "(a = 'x') IN ('x')",
        "a IN (5)",
        "a IN ()",
        "a IN ('x'",
        "a NOT 'x'",
    ] {
        refused(text);
    }
}

#[test]
fn parts_of_an_existing_text_are_found() {
    check("a CONTAINS 'rde'", &["a=order"], true);
    check("a contains 'x'", &["a=order"], false);
    check("a STARTSWITH 'or'", &["a=order"], true);
    check("a STARTSWITH 'rd'", &["a=order"], false);
    check("a ENDSWITH 'er'", &["a=order"], true);
    check("a NOT CONTAINS 'x'", &["a=order"], true);
    check("a NOT STARTSWITH 'or'", &["a=order"], false);
    check("a NOT ENDSWITH 'x'", &["a=order"], true);
    // A missing property or an empty search text: false either way.
    for text in ["a CONTAINS 'x'", "a NOT CONTAINS 'x'", "b CONTAINS ''", "b NOT CONTAINS ''"] {
        check(text, &["b=order"], false);
    }
    refused("a CONTAINS b");
}

#[test]
fn a_bare_property_is_false_and_not_binds_tighter_than_a_comparison() {
    check("a", &["a=true"], false);
    check("NOT a", &["a=true"], true);
    check("NOT a", &[], false);
    check("NOT a = 'x'", &["a=y"], false);
    check("NOT (a = 'x')", &["a=y"], true);
    check("TRUE = b", &["b=true"], false);
    check("b = TRUE", &["b=true"], true);
    check("5 <> TRUE", &[], true);
    check("TRUE <> -5", &[], true);
    check("TRUE", &[], true);
    check("FALSE OR TRUE", &[], true);
    check("NULL", &[], false);
}

#[test]
fn a_non_boolean_expression_is_refused() {
    for text in ["5", "'x'", "-a", "a AND 5", "NOT 'x'", "", "  ", "()", "NOT"] {
        refused(text);
    }
}

#[test]
fn sizes_are_of_numbers_and_properties() {
    check("1 < 2", &[], true);
    check("1 < 2.5", &[], true);
    check("3000000000 > 1", &[], true);
    for text in ["a > 'x'", "'x' < a", "a > TRUE", "NULL > a", "a > (b = 'x')", "(a > 1) > 1", "a > NULL"] {
        refused(text);
    }
    assert!(refused("TRUE = 'x'").contains("boolean"));
}

#[test]
fn numbers_have_the_ranges_of_java() {
    check("a = 2147483647", &["a=2147483647"], true);
    check("a = -2147483647", &["a=-2147483647"], true);
    check("a = 9223372036854775807L", &["a=9223372036854775807"], true);
    check("a = 7L", &["a=7"], true);
    check("a = 1.5e2", &["a=150"], true);
    check("a = .5", &["a=0.5"], true);
    check("a = 5.", &["a=5"], true);
    check("a = 1E3", &["a=1000"], true);
    check("a = + - -5", &["a=5"], true);
    // A sign in front of a non-number yields no value.
    check("-a = 5", &["a=-5"], false);
    for text in ["a = 9223372036854775808", "a = 0.0", "a = 1e400", "a = 0e1"] {
        refused(text);
    }
}

#[test]
fn texts_and_names_are_read_verbatim() {
    check("a = 'it''s'", &["a=it's"], true);
    check("a = ''''", &["a='"], true);
    check("a = '\\'", &["a=\\"], true);
    check("a = '订单'", &["a=订单"], true);
    check("_a$1 = 'x'", &["_a$1=x"], true);
    check("KEYS = 'k1' AND TAGS = 'paid'", &["KEYS=k1", "TAGS=paid"], true);
    // Case matters in names, not in keywords.
    check("A = 'x'", &["a=x"], false);
    check("a = 'x' aNd b = 'y'", &["a=x", "b=y"], true);
    check("a = '3' -- three\n AND /* and ** b */ b = 'y'", &["a=3", "b=y"], true);
    for text in
        ["a = 'x", "a = \"x\"", "订单 = 'x'", "a != 'x'", "a == 'x'", "a = 'x';", "a.b = 'x'", "a = /* x"]
    {
        refused(text);
    }
}

#[test]
fn and_binds_tighter_than_or() {
    check("a = '1' OR b = '1' AND c = '1'", &["a=1", "b=2", "c=2"], true);
    check("(a = '1' OR b = '1') AND c = '1'", &["a=1", "b=2", "c=2"], false);
}

#[test]
fn trailing_text_is_an_error_only_when_strict() {
    for (text, expected) in [
        ("a = 'x' garbage", true),
        ("a LIKE 'x%'", false),
        ("a+1 = 2", false),
        ("a-b = 1", false),
        ("a = 'x' )", true),
        ("a = 'x' -- no line follows", true),
    ] {
        assert!(refused(text).contains("ignored"), "{text}");
        let lenient = SqlFilter::parse(text, false).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(lenient.matches(&properties(&["a=x"])), expected, "{text}");
    }
    refused("a = 007");
    assert!(SqlFilter::parse("a = 007", false).is_ok_and(|zero| zero.matches(&properties(&["a=0"]))));
    assert!(SqlFilter::parse("a = 'x' !", false).is_err());
}

#[test]
fn text_depth_and_names_have_bounds() {
    let nested = |levels: usize| format!("{}TRUE{}", "(".repeat(levels), ")".repeat(levels));
    assert!(SqlFilter::parse(&nested(DEPTH_MAX - 1), true).is_ok());
    assert!(refused(&nested(DEPTH_MAX)).contains("levels"));
    assert!(refused(&nested(8_000)).contains("levels"));
    assert!(refused(&format!("{} a", "NOT ".repeat(4_000))).contains("levels"));
    assert!(refused(&format!("a{}", " = b".repeat(4_000))).contains("levels"));
    assert!(refused(&format!("a{}", " IS NULL".repeat(2_000))).contains("levels"));
    assert!(refused(&format!("a = '{}'", "x".repeat(SQL_BYTES_MAX))).contains("bytes"));
    // Wide, but not deep.
    let wide = vec!["a = 'x'"; 1_000].join(" OR ");
    check(&wide, &["a=x"], true);
    let named = |count: usize| (0..count).map(|at| format!("n{at} = 'x'")).collect::<Vec<_>>().join(" OR ");
    check(&named(SQL_NAMES_MAX), &["n31=x"], true);
    assert!(refused(&named(SQL_NAMES_MAX + 1)).contains("properties"));
}

#[test]
fn invalid_utf8_is_a_value_like_others() {
    let broken = b"a\x01\xFF\xFE\x02b\x01x\x02";
    assert!(filter("b = 'x' AND a <> 'x'").matches(broken));
    assert!(!filter("a > 5").matches(broken));
}

#[test]
fn the_last_of_two_properties_of_one_name_counts() {
    check("a = '2'", &["a=1", "a=2"], true);
}

#[test]
fn an_unknown_operator_is_refused_with_the_valid_ones() {
    for text in ["a != 1", "a == 1", "a LIKE 'x%'", "a NOT LIKE 'x%'", "a = 1 && b = 2", "a = 1 || b = 2"] {
        let error = SqlFilter::parse(text, true).expect_err(text).to_string();
        assert!(error.contains("operators are = <> < <= > >=, AND, OR"), "{text}: {error}");
    }
}
