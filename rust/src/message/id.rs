//! Message ids: the broker's, a position in its log, and the client's, which is only unique.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU32, Ordering};

use arrayvec::ArrayString;

use super::error::IdError;
use crate::positions::PhysicalOffset;

/// The location of a message: the `msgId` of a send response.
///
/// As text: address (4 or 16 bytes), port and offset in upper-case hex, 32 or 56 characters. Transactions and lookups
/// parse it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OffsetMessageId {
    /// The broker's address as stored in the record.
    pub store_host: SocketAddr,
    /// The position in its log.
    pub physical: PhysicalOffset,
}

pub(crate) type OffsetMessageIdText = ArrayString<56>;

impl OffsetMessageId {
    /// Returns the id as text, on the stack.
    pub fn text(&self) -> OffsetMessageIdText {
        let mut text = ArrayString::new();
        let port = self.store_host.port();
        match self.store_host.ip().to_canonical() {
            // In one step, because every send response carries such an id.
            IpAddr::V4(ip) => {
                let place = u128::from(port) << 64 | u128::from(self.physical.0);
                push_hex(&mut text, &(u128::from(ip.to_bits()) << 96 | place).to_be_bytes());
            }
            IpAddr::V6(ip) => {
                push_hex(&mut text, &ip.octets());
                push_hex(&mut text, &u32::from(port).to_be_bytes());
                push_hex(&mut text, &self.physical.0.to_be_bytes());
            }
        }
        text
    }

    /// Parses an id in upper or lower case. Fails on any other text.
    pub fn decode(text: &str) -> Result<Self, IdError> {
        let mut bytes = [0; 28];
        let length = decode_hex(text, &mut bytes)?;
        let split = length.checked_sub(12).ok_or(IdError)?;
        let (ip, rest) = bytes.get(..length).and_then(|id| id.split_at_checked(split)).ok_or(IdError)?;
        let ip = match ip.len() {
            4 => IpAddr::from(*ip.first_chunk::<4>().ok_or(IdError)?),
            16 => IpAddr::from(*ip.first_chunk::<16>().ok_or(IdError)?),
            _ => return Err(IdError),
        };
        let (port, physical) = rest.split_first_chunk::<4>().ok_or(IdError)?;
        let port = u16::try_from(u32::from_be_bytes(*port)).map_err(|_| IdError)?;
        let physical = u64::from_be_bytes(*physical.first_chunk::<8>().ok_or(IdError)?);
        // Offsets are signed in every other implementation.
        i64::try_from(physical).map_err(|_| IdError)?;
        Ok(Self { store_host: SocketAddr::new(ip, port), physical: PhysicalOffset(physical) })
    }
}

impl fmt::Display for OffsetMessageId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.text())
    }
}

/// The text of a unique id: the property `UNIQ_KEY`.
pub(crate) type UniqueIdText = ArrayString<32>;

/// Generates ids for `UNIQ_KEY` from address, process, salt, time and a counter, in the layout of Java clients.
///
/// A duplicate needs 65,536 messages of one process within one millisecond. Any thread may call [`next`](Self::next).
#[derive(Debug)]
pub(crate) struct UniqueIds {
    address: [u8; 4],
    process: [u8; 2],
    salt: [u8; 4],
    counter: AtomicU32,
}

impl UniqueIds {
    /// Creates a source for the process `process_id` on the machine `address`. The random `salt` distinguishes
    /// sources that share both, such as containers.
    pub(crate) const fn new(address: Ipv4Addr, process_id: u32, salt: u32) -> Self {
        Self {
            address: address.octets(),
            process: (process_id as u16).to_be_bytes(),
            salt: salt.to_be_bytes(),
            counter: AtomicU32::new(0),
        }
    }

    pub(crate) fn next(&self, now_ms: u64) -> UniqueIdText {
        let count = self.counter.fetch_add(1, Ordering::Relaxed) as u16;
        let mut text = ArrayString::new();
        push_hex(&mut text, &self.address);
        push_hex(&mut text, &self.process);
        push_hex(&mut text, &self.salt);
        push_hex(&mut text, &ms_of_month(now_ms).to_be_bytes());
        push_hex(&mut text, &count.to_be_bytes());
        text
    }
}

/// Returns an id derived from a hash: the same content always has the same id.
pub(crate) fn hashed_id(hash: u128) -> UniqueIdText {
    let mut text = ArrayString::new();
    push_hex(&mut text, &hash.to_be_bytes());
    text
}

/// Milliseconds since the month began in the last time zone to begin it: UTC-12.
///
/// Java counts from local midnight, and its tools start to search for an id at that time in their own zone. With this
/// origin, the decoded time is never later than the true one, whatever the zones of tool and client.
fn ms_of_month(now_ms: u64) -> u32 {
    const DAY_MS: u64 = 86_400_000;
    let local_ms = now_ms.saturating_sub(DAY_MS / 2);
    // Civil date from a day count: years of 365.2425 days that begin in March, so that leap days come last.
    let day = local_ms / DAY_MS + 719_468;
    let day_of_era = day % 146_097;
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5;
    // At most 31 days: below 2^32.
    (day_of_month * DAY_MS + local_ms % DAY_MS) as u32
}

/// The upper-case hex of each byte.
const HEX: [[u8; 2]; 256] = {
    let digits = b"0123456789ABCDEF";
    let mut hex = [[0; 2]; 256];
    let mut byte = 0;
    while byte < 256 {
        hex[byte] = [digits[byte >> 4], digits[byte & 15]];
        byte += 1;
    }
    hex
};

/// Appends up to 16 bytes in upper-case hex.
fn push_hex<const N: usize>(text: &mut ArrayString<N>, bytes: &[u8]) {
    let mut hex = [0; 32];
    let (pairs, _) = hex.as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(bytes) {
        *pair = HEX[usize::from(*byte)];
    }
    let hex = hex.get(..bytes.len() * 2).unwrap_or_default();
    text.push_str(std::str::from_utf8(hex).unwrap_or_default());
}

/// Decodes hex of any case into the front of `out`; returns the number of bytes.
fn decode_hex(text: &str, out: &mut [u8]) -> Result<usize, IdError> {
    let (pairs, odd) = text.as_bytes().as_chunks::<2>();
    if !odd.is_empty() || pairs.len() > out.len() {
        return Err(IdError);
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(IdError);
    for (byte, [high, low]) in out.iter_mut().zip(pairs) {
        *byte = (digit(*high)? << 4 | digit(*low)?) as u8;
    }
    Ok(pairs.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(host: &str, physical: u64, expected: &str) {
        let id = OffsetMessageId { store_host: host.parse().unwrap(), physical: PhysicalOffset(physical) };
        assert_eq!(id.to_string(), expected);
        assert_eq!(OffsetMessageId::decode(expected), Ok(id));
        assert_eq!(OffsetMessageId::decode(&expected.to_lowercase()), Ok(id));
    }

    #[test]
    fn an_id_is_address_port_and_offset() {
        check("10.0.0.2:10911", 256, "0A00000200002A9F0000000000000100");
        check("[2001:db8::1]:1", i64::MAX as u64, "20010DB8000000000000000000000001000000017FFFFFFFFFFFFFFF");
    }

    #[test]
    fn text_that_is_not_an_id_is_refused() {
        for text in [
            "",
            "0A",
            "0A00000200002A9F00000000000001",
            "0A00000200002A9F000000000000010G",
            "0A00000200012A9F0000000000000100",
            "0A00000200002A9F8000000000000100",
            "0A00000200002A9F00000000000001000A00000200002A9F0000000000000100",
            "é0A00000200002A9F00000000000001",
        ] {
            assert_eq!(OffsetMessageId::decode(text), Err(IdError), "{text}");
        }
    }

    #[test]
    fn unique_ids_have_the_layout_of_java() {
        let ids = UniqueIds::new(Ipv4Addr::new(10, 0, 0, 1), 0x1_0203, 0xA1B2_C3D4);
        // 2024-03-01 12:00:01 UTC is one second into March at UTC-12.
        let march_ms = 1_709_294_401_000;
        assert_eq!(ids.next(march_ms).as_str(), "0A0000010203A1B2C3D4000003E80000");
        assert_eq!(ids.next(march_ms).as_str(), "0A0000010203A1B2C3D4000003E80001");
        // Two seconds earlier it is still the leap day.
        assert_eq!(ms_of_month(march_ms - 2_000), 29 * 86_400_000 - 1_000);
        assert_eq!(ms_of_month(0), 0);
    }

    #[test]
    fn the_counter_wraps_without_touching_the_rest() {
        let ids = UniqueIds::new(Ipv4Addr::LOCALHOST, 1, 2);
        let first = ids.next(1_709_294_401_000);
        for _ in 0..0xFFFF {
            let _ = ids.next(1_709_294_401_000);
        }
        assert_eq!(ids.next(1_709_294_401_000), first);
    }
}
