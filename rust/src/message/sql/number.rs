//! Numbers: parses text like Java's `Integer.valueOf`, `Long.valueOf` and `Double.valueOf`.

use std::str::FromStr;

/// Parses an integer: digits with an optional sign.
pub(super) fn integer<T: FromStr>(text: &[u8]) -> Option<T> {
    // Rust's rule is the same for ASCII.
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Parses a double, with optional white space around it, a sign, and one type letter at the end.
pub(super) fn double(text: &[u8]) -> Option<f64> {
    let from = text.iter().position(|byte| *byte > b' ')?;
    let to = text.iter().rposition(|byte| *byte > b' ')? + 1;
    let text = &text[from..to];
    let (is_negative, text) = match text {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        _ => (false, text),
    };
    let number = match text {
        b"NaN" => return Some(f64::NAN),
        b"Infinity" => f64::INFINITY,
        [decimal @ .., b'f' | b'F' | b'd' | b'D'] | decimal => decimal_of(decimal)?,
    };
    Some(if is_negative { -number } else { number })
}

/// Parses an unsigned number. Rust also accepts words such as `inf`, which Java does not.
fn decimal_of(text: &[u8]) -> Option<f64> {
    if !matches!(text.first(), Some(b'0'..=b'9' | b'.')) {
        return None;
    }
    std::str::from_utf8(text).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_read_as_java_reads_them() {
        for (text, expected) in [("5", Some(5)), ("+5", Some(5)), ("-5", Some(-5)), ("007", Some(7))] {
            assert_eq!(integer::<i32>(text.as_bytes()), expected, "{text}");
        }
        for text in ["", " 5", "5 ", "5.0", "1e3", "2147483648", "0x10", "5L", "+", "-"] {
            assert_eq!(integer::<i32>(text.as_bytes()), None, "{text:?}");
        }
        assert_eq!(integer::<i32>(b"-2147483648"), Some(i32::MIN));
        assert_eq!(integer::<i64>(b"9223372036854775807"), Some(i64::MAX));
        assert_eq!(integer::<i64>(b"\xFF"), None);
    }

    #[test]
    fn doubles_are_read_as_java_reads_them() {
        for (text, expected) in [
            ("5", 5.0),
            (" 5.5\t", 5.5),
            ("5.", 5.0),
            (".5", 0.5),
            ("-.5e1", -5.0),
            ("1E2", 100.0),
            ("1.5f", 1.5),
            ("2D", 2.0),
            ("Infinity", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e999", f64::INFINITY),
        ] {
            assert_eq!(double(text.as_bytes()), Some(expected), "{text:?}");
        }
        assert!(double(b"NaN").is_some_and(f64::is_nan));
        for text in ["", " ", "inf", "nan", "infinity", "1e", ".", "e5", "5 5", "--5", "0x1p3", "f", "5ff"] {
            assert_eq!(double(text.as_bytes()), None, "{text:?}");
        }
    }
}
