//! Shown times: converts a record's timestamp to a displayable date.
//!
//! Producers may write any number into a record, such as microseconds. Readers keep the number; the date is limited
//! to the range that every calendar supports in every time zone.

/// 0001-01-02 00:00 UTC, in milliseconds: a day after the first date, for all time zones.
pub(crate) const EARLIEST_MS: i64 = -62_135_510_400_000;
/// 9999-12-30 23:59:59.999 UTC, in milliseconds: a day before the last date.
pub(crate) const LATEST_MS: i64 = 253_402_214_399_999;

/// Limits a timestamp to the displayable range.
pub(crate) fn shown_ms(timestamp_ms: i64) -> i64 {
    timestamp_ms.clamp(EARLIEST_MS, LATEST_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_beyond_all_dates_is_shown_as_the_nearest() {
        let micros = 1_767_225_600_000_000;
        assert_eq!(
            [micros, i64::MAX, i64::MIN, 0, -1].map(shown_ms),
            [LATEST_MS, LATEST_MS, EARLIEST_MS, 0, -1]
        );
    }
}
