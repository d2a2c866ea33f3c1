//! Kafka's record batch (version 2), as producers send it and as fetches bring it.
//!
//! ```text
//! offset  0  base offset i64        | counted from the record that follows it
//!         8  length i32             | of everything behind this field
//!        12  leader epoch i32, 16 magic i8 = 2
//!        17  CRC-32C u32            | of everything behind this field
//!        21  attributes i16, 23 last offset delta i32, 27 and 35 timestamps i64
//!        43  producer id i64, 51 producer epoch i16, 53 base sequence i32, 57 count i32
//!        61  records, each with its length in front, numbers in zigzag varints
//! ```

const LENGTH_AT: usize = 8;
const CRC_AT: usize = 17;
const CHECKED_AT: usize = 21;
const LAST_OFFSET_DELTA_AT: usize = 23;
const MAGIC: i8 = 2;

/// A batch of `count` records of one body: no keys, no headers, no compression, no producer id.
pub fn encode(body: &[u8], count: usize, now_ms: i64) -> Vec<u8> {
    let mut batch = Vec::new();
    batch.extend_from_slice(&0_i64.to_be_bytes());
    batch.extend_from_slice(&0_i32.to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes());
    batch.extend_from_slice(&MAGIC.to_be_bytes());
    batch.extend_from_slice(&0_u32.to_be_bytes());
    batch.extend_from_slice(&0_i16.to_be_bytes());
    batch.extend_from_slice(&(count as i32 - 1).to_be_bytes());
    batch.extend_from_slice(&now_ms.to_be_bytes());
    batch.extend_from_slice(&now_ms.to_be_bytes());
    batch.extend_from_slice(&(-1_i64).to_be_bytes());
    batch.extend_from_slice(&(-1_i16).to_be_bytes());
    batch.extend_from_slice(&(-1_i32).to_be_bytes());
    batch.extend_from_slice(&(count as i32).to_be_bytes());
    for index in 0..count {
        // Attributes, timestamp delta, offset delta, no key, the body, no headers.
        let mut record = vec![0, 0];
        varint(&mut record, index as i64);
        varint(&mut record, -1);
        varint(&mut record, body.len() as i64);
        record.extend_from_slice(body);
        varint(&mut record, 0);
        varint(&mut batch, record.len() as i64);
        batch.extend_from_slice(&record);
    }
    let length = (batch.len() - LENGTH_AT - 4) as i32;
    batch[LENGTH_AT..LENGTH_AT + 4].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c(&batch[CHECKED_AT..]);
    batch[CRC_AT..CRC_AT + 4].copy_from_slice(&crc.to_be_bytes());
    batch
}

/// The records of the whole batches in `bytes`, and the offset behind the last of them. A fetch is cut off at its limit
/// of bytes, anywhere.
pub fn count(mut bytes: &[u8]) -> (u64, Option<u64>) {
    let (mut records, mut next) = (0, None);
    while let Some((base, length, delta)) = head(bytes) {
        let Some(rest) = bytes.get(LENGTH_AT + 4 + length..) else { break };
        records += delta + 1;
        next = Some(base + delta + 1);
        bytes = rest;
    }
    (records, next)
}

/// Base offset, length and last offset delta of the batch in front.
fn head(bytes: &[u8]) -> Option<(u64, usize, u64)> {
    let base = i64::from_be_bytes(*bytes.first_chunk()?);
    let length = i32::from_be_bytes(*bytes.get(LENGTH_AT..)?.first_chunk()?);
    let delta = i32::from_be_bytes(*bytes.get(LAST_OFFSET_DELTA_AT..)?.first_chunk()?);
    Some((u64::try_from(base).ok()?, usize::try_from(length).ok()?, u64::try_from(delta).ok()?))
}

fn varint(out: &mut Vec<u8>, number: i64) {
    let mut rest = ((number << 1) ^ (number >> 63)) as u64;
    while rest > 0x7f {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Castagnoli's polynomial, a bit at a time: batches are made once.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_that_of_rfc_3720() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
    }

    #[test]
    fn numbers_are_zigzag_varints() {
        let check = |number: i64, expected: &[u8]| {
            let mut out = Vec::new();
            varint(&mut out, number);
            assert_eq!(out, expected, "{number}");
        };
        check(0, &[0]);
        check(-1, &[1]);
        check(63, &[126]);
        check(64, &[0x80, 1]);
        check(1024, &[0x80, 0x10]);
    }

    #[test]
    fn a_batch_of_two_is_laid_out_as_the_protocol_says() {
        let batch = encode(b"hi", 2, 0x0102_0304_0506_0708);
        let records = [[16, 0, 0, 0, 1, 4, b'h', b'i', 0], [16, 0, 0, 2, 1, 4, b'h', b'i', 0]].concat();
        assert_eq!(batch.len(), 61 + records.len());
        assert_eq!(batch[..8], [0; 8]);
        assert_eq!(batch[8..12], (49 + records.len() as i32).to_be_bytes());
        assert_eq!(batch[12..17], [0xff, 0xff, 0xff, 0xff, 2]);
        assert_eq!(batch[17..21], crc32c(&batch[21..]).to_be_bytes());
        assert_eq!(batch[21..27], [0, 0, 0, 0, 0, 1]);
        assert_eq!(batch[27..35], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(batch[35..43], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(batch[43..57], [0xff; 14]);
        assert_eq!(batch[57..61], [0, 0, 0, 2]);
        assert_eq!(batch[61..], records);
    }

    #[test]
    fn whole_batches_are_counted_and_one_that_is_cut_off_is_not() {
        let mut bytes = encode(b"one", 3, 0);
        let mut second = encode(b"two", 2, 0);
        second[..8].copy_from_slice(&3_i64.to_be_bytes());
        bytes.extend_from_slice(&second);
        assert_eq!(count(&bytes), (5, Some(5)));
        assert_eq!(count(&bytes[..bytes.len() - 1]), (3, Some(3)));
        assert_eq!(count(&bytes[..20]), (0, None));
        assert_eq!(count(&[]), (0, None));
    }
}
