//! Fuzz target: any text is an expression or an error, and an expression evaluates on any properties.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rmqpy::message::sql::SqlFilter;

fuzz_target!(|input: (&str, &[u8])| {
    let (text, properties) = input;
    let strict = SqlFilter::parse(text, true);
    let lenient = SqlFilter::parse(text, false);
    match (strict, lenient) {
        (Ok(strict), Ok(lenient)) => assert_eq!(strict.matches(properties), lenient.matches(properties)),
        // A valid strict expression is also valid without `strict`.
        (Ok(_), Err(error)) => panic!("{text}: {error}"),
        (Err(error), Ok(lenient)) => {
            assert!(error.at <= text.len().max(rmqpy::message::sql::SQL_BYTES_MAX));
            let _ = lenient.matches(properties);
        }
        (Err(strict), Err(_)) => assert!(!strict.reason.is_empty()),
    }
});
