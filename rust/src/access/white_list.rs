//! White lists: addresses from which ACL 1.0 accepts requests without a signature.
//!
//! The notation of `plain_acl.yml`: nothing; `*`, also for each part; one address; several, separated by commas;
//! `192.168.1.{7,8}`, with several last parts; `192.168.1-4.*`, where parts but the first are ranges, followed only
//! by `*`. IPv6 likewise, with parts of 16 bits.

use std::net::IpAddr;

/// Parts of an IPv6 address; an IPv4 address has half as many.
const PARTS_MAX: usize = 8;
const PARTS_V4: usize = 4;

/// The lowest and the highest value of each part.
type Ranges = [(u16, u16); PARTS_MAX];

/// A pattern of addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Pattern {
    Any,
    V4(Ranges),
    V6(Ranges),
}

/// The addresses from which requests are accepted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct WhiteList {
    patterns: Vec<Pattern>,
}

impl WhiteList {
    /// Parses one entry of a list; returns `None` if it is not valid.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() {
            return Some(Self::default());
        }
        let braced = text.strip_suffix('}').and_then(|text| text.rsplit_once('{'));
        let patterns = match braced {
            Some((front, parts)) if !front.is_empty() => parts
                .split(',')
                .map(|part| pattern(&format!("{front}{}", part.trim())))
                .collect::<Option<_>>(),
            _ => text.split(',').map(|address| pattern(address.trim())).collect(),
        };
        patterns.map(|patterns| Self { patterns })
    }

    /// Adds the addresses of another list.
    pub fn extend(&mut self, other: Self) {
        self.patterns.extend(other.patterns);
    }

    /// Returns whether the list has `address`. An IPv4-mapped IPv6 address counts as IPv4.
    #[must_use]
    pub fn has(&self, address: IpAddr) -> bool {
        if self.patterns.is_empty() {
            return false;
        }
        let address = address.to_canonical();
        self.patterns.iter().any(|pattern| match (pattern, address) {
            (Pattern::Any, _) => true,
            (Pattern::V4(ranges), IpAddr::V4(address)) => {
                are_within(address.octets().into_iter().map(u16::from), &ranges[..PARTS_V4])
            }
            (Pattern::V6(ranges), IpAddr::V6(address)) => are_within(address.segments().into_iter(), ranges),
            _ => false,
        })
    }
}

fn are_within(parts: impl Iterator<Item = u16>, ranges: &[(u16, u16)]) -> bool {
    parts.zip(ranges).all(|(part, (low, high))| (*low..=*high).contains(&part))
}

fn pattern(text: &str) -> Option<Pattern> {
    if matches!(text, "*" | "*.*.*.*" | "*:*:*:*:*:*:*:*") {
        return Some(Pattern::Any);
    }
    if text.contains(':') {
        let expanded = expanded(text)?;
        return ranges(expanded.split(':'), PARTS_MAX, 16, u16::MAX).map(Pattern::V6);
    }
    ranges(text.split('.'), PARTS_V4, 10, u16::from(u8::MAX)).map(Pattern::V4)
}

/// Expands `::` to the missing zeros, so that there are eight parts.
fn expanded(text: &str) -> Option<String> {
    let Some((front, back)) = text.split_once("::") else { return Some(text.to_owned()) };
    let [front, back]: [Vec<&str>; 2] =
        [front, back].map(|half| if half.is_empty() { vec![] } else { half.split(':').collect() });
    let missing = PARTS_MAX.checked_sub(front.len() + back.len()).filter(|missing| *missing > 0)?;
    let zeros = std::iter::repeat_n("0", missing);
    Some(front.into_iter().chain(zeros).chain(back).collect::<Vec<_>>().join(":"))
}

fn ranges<'a>(parts: impl Iterator<Item = &'a str>, count: usize, radix: u32, high: u16) -> Option<Ranges> {
    let number = |text: &str| {
        let value = u16::from_str_radix(text, radix).ok().filter(|value| *value <= high)?;
        text.chars().all(|char| char.is_digit(radix)).then_some(value)
    };
    let mut ranges: Ranges = [(0, high); PARTS_MAX];
    let (mut at, mut has_range) = (0, false);
    for part in parts {
        let range = match part.split_once('-') {
            _ if part == "*" => (0, high),
            _ if has_range => return None,
            Some((from, to)) => (number(from)?, number(to)?),
            None => (number(part)?, number(part)?),
        };
        let is_range = part == "*" || part.contains('-');
        if is_range && at == 0 || range.0 > range.1 {
            return None;
        }
        has_range |= is_range;
        *ranges.get_mut(at).filter(|_| at < count)? = range;
        at += 1;
    }
    (at == count).then_some(ranges)
}
