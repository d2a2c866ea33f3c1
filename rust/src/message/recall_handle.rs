//! Recall handle: identifies a timed message, from the send response, for recalling it.
//!
//! `v1 TOPIC BROKER TIME ID` in URL-safe Base64 with padding. The time selects the slot of the wheel; the id is the
//! message's `UNIQ_KEY`.

const VERSION: &str = "v1";
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A decoded handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RecallHandle<'a> {
    /// The topic the message will be delivered to.
    pub topic: &'a str,
    /// The name of the broker that stores it.
    pub broker: &'a str,
    /// A time that rounds to the message's slot.
    pub time_ms: i64,
    /// Its unique key.
    pub message_id: &'a str,
}

impl RecallHandle<'_> {
    /// Encodes the handle for clients.
    #[must_use]
    pub fn encode(&self) -> String {
        let Self { topic, broker, time_ms, message_id } = self;
        encode_base64(format!("{VERSION} {topic} {broker} {time_ms} {message_id}").as_bytes())
    }
}

/// Decodes the text of a handle; `None` if damaged.
#[must_use]
pub fn text(handle: &str) -> Option<String> {
    String::from_utf8(decode_base64(handle.as_bytes())?).ok()
}

/// Parses the text of a handle; `None` if invalid or of another version.
#[must_use]
pub fn parse(text: &str) -> Option<RecallHandle<'_>> {
    let mut parts = text.split(' ');
    let parts: [&str; 5] = std::array::from_fn(|_| parts.next().unwrap_or_default());
    let [version, topic, broker, time_ms, message_id] = parts;
    let is_whole =
        version == VERSION && parts.iter().map(|part| part.len() + 1).sum::<usize>() == text.len() + 1;
    if !is_whole || parts.contains(&"") {
        return None;
    }
    Some(RecallHandle { topic, broker, time_ms: time_ms.parse().ok()?, message_id })
}

fn encode_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |group, byte| group << 8 | u32::from(*byte));
        let group = group << (8 * (3 - chunk.len()));
        for digit in 0..4 {
            let value = (group >> (18 - 6 * digit)) & 63;
            let is_padding = digit > chunk.len();
            text.push(if is_padding { '=' } else { char::from(ALPHABET[value as usize]) });
        }
    }
    text
}

/// Padding is optional, as in Java's decoder.
fn decode_base64(text: &[u8]) -> Option<Vec<u8>> {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let (digits, _) = text.split_at_checked(text.len() - padding)?;
    let is_padded = padding > 0;
    if padding > 2 || (is_padded && !text.len().is_multiple_of(4)) || digits.len() % 4 == 1 {
        return None;
    }
    let mut bytes = Vec::with_capacity(digits.len() / 4 * 3 + 2);
    for chunk in digits.chunks(4) {
        let mut group = 0_u32;
        for digit in chunk {
            group = group << 6 | value(*digit)?;
        }
        group <<= 6 * (4 - chunk.len());
        let [_, decoded @ ..] = group.to_be_bytes();
        bytes.extend(decoded.iter().take(chunk.len() - 1));
    }
    Some(bytes)
}

fn value(digit: u8) -> Option<u32> {
    Some(
        match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'-' => 62,
            b'_' => 63,
            _ => return None,
        }
        .into(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A handle returned by Apache's broker.
    const HANDLE: &str = "djEgVDEgYmEgMTc5NTI1NzY1NjAwMSAwQTAwMDAwMTAwMDAwMDAxMDAwMDAwMDAwMDAwMDBDNA==";
    const CONTENT: RecallHandle<'_> = RecallHandle {
        topic: "T1",
        broker: "ba",
        time_ms: 1_795_257_656_001,
        message_id: "0A0000010000000100000000000000C4",
    };

    #[test]
    fn a_handle_equals_apaches() {
        assert_eq!(CONTENT.encode(), HANDLE);
        let text = text(HANDLE).expect("a handle");
        assert_eq!(parse(&text), Some(CONTENT));
    }

    #[test]
    fn any_bytes_come_back_and_padding_may_be_missing() {
        for length in 0..9_u8 {
            let bytes: Vec<u8> = (0..length).map(|index| index.wrapping_mul(97).wrapping_add(251)).collect();
            let text = encode_base64(&bytes);
            assert_eq!(text.len() % 4, 0);
            assert_eq!(decode_base64(text.as_bytes()).as_ref(), Some(&bytes));
            assert_eq!(decode_base64(text.trim_end_matches('=').as_bytes()), Some(bytes));
        }
    }

    #[test]
    fn damaged_text_is_not_a_handle() {
        let decoded = |handle: &str| text(handle).and_then(|text| parse(&text).map(|found| found.time_ms));
        assert_eq!(decoded(HANDLE), Some(CONTENT.time_ms));
        for damaged in ["", "=", "a", "a===", "djE", "not a handle", "djEgVDE+", &HANDLE[1..], &HANDLE[..20]]
        {
            assert_eq!(decoded(damaged), None, "{damaged:?}");
        }
        for text in
            ["v2 t b 1 id", "v1 t b 1", "v1 t b 1 id more", "v1 t b soon id", "v1  b 1 id", "v1 t b 1 "]
        {
            assert_eq!(parse(text), None, "{text:?}");
        }
    }
}
