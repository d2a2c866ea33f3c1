//! Tags and keys: their hashes in ConsumeQueue and Index, and the filters of a subscription. The broker's filter
//! compares hashes, the client's compares the tags.

use hashbrown::HashSet;

use super::properties::{self, name};

/// Java's `String.hashCode` of UTF-8 text: `h = 31 h + unit` over UTF-16 units, wrapping.
pub fn java_hash(text: &[u8]) -> i32 {
    hash_on(0, text)
}

/// The factor for a hash before four more bytes.
const FOUR_STEPS: i32 = 31_i32.pow(4);

/// Continues a hash with `text`.
fn hash_on(hash: i32, text: &[u8]) -> i32 {
    let step = |hash: i32, unit: i32| hash.wrapping_mul(31).wrapping_add(unit);
    if text.is_ascii() {
        // Four steps in one: single steps depend on each other, and every key of every message is hashed here. The
        // sum of four ASCII bytes cannot overflow and is independent of the hash.
        let (chunks, rest) = text.as_chunks::<4>();
        let hash = chunks.iter().fold(hash, |hash, chunk| {
            let sum = chunk.iter().fold(0, |sum, &byte| sum * 31 + i32::from(byte));
            hash.wrapping_mul(FOUR_STEPS).wrapping_add(sum)
        });
        return rest.iter().fold(hash, |hash, &byte| step(hash, i32::from(byte)));
    }
    text.utf8_chunks().fold(hash, |hash, chunk| {
        let hash = chunk.valid().encode_utf16().fold(hash, |hash, unit| step(hash, i32::from(unit)));
        // Java reads an invalid sequence as U+FFFD.
        if chunk.invalid().is_empty() { hash } else { step(hash, 0xFFFD) }
    })
}

/// Returns ConsumeQueue's value for a message's tag: the hash, sign-extended; 0 without a tag.
pub fn tags_code(properties: &[u8]) -> i64 {
    properties::get(properties, name::TAGS).map_or(0, |tag| i64::from(java_hash(tag)))
}

/// Returns Index's value for a business key or UNIQ_KEY: the hash of `topic#key`.
pub fn key_hash(topic: &[u8], key: &[u8]) -> i32 {
    positive(hash_on(hash_on(java_hash(topic), b"#"), key))
}

/// Returns Index's value for a tag: the hash of `topic#T#tag`.
pub(crate) fn tag_key_hash(topic: &[u8], tag: &[u8]) -> i32 {
    positive(hash_on(hash_on(java_hash(topic), b"#T#"), tag))
}

/// Returns the absolute value, and 0 for the number that has none.
const fn positive(hash: i32) -> i32 {
    match hash.checked_abs() {
        Some(hash) => hash,
        None => 0,
    }
}

/// Maximum number of tags in a broker's subscription.
pub const TAGS_MAX: usize = 1_000;
/// Up to this many tags are compared one by one; nearly every subscription has fewer.
const FEW_MAX: usize = 8;

/// Splits an expression into tags; none for `*`, an empty text or blanks, which mean every message.
fn tags(expression: &str) -> impl Iterator<Item = &str> {
    let tags = if expression == "*" { "" } else { expression }.split("||");
    // Java's trim removes control characters, and of white space only the blank.
    tags.map(|tag| tag.trim_matches(|c| c <= ' ')).filter(|tag| !tag.is_empty())
}

/// A subscription has more than [`TAGS_MAX`] tags.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooManyTags;

/// The codes of a subscription's tags, which a broker compares with queue entries.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TagCodes {
    /// Everything.
    All,
    /// One of these.
    Few(Box<[i32]>),
    /// Many tags, in a hash set.
    Many(HashSet<i32>),
}

impl TagCodes {
    /// Parses `*`, an empty text, or `A || B`.
    ///
    /// # Errors
    /// When there are too many tags.
    pub fn parse(expression: &str) -> Result<Self, TooManyTags> {
        let mut codes = Vec::new();
        for tag in tags(expression) {
            if codes.len() >= TAGS_MAX {
                return Err(TooManyTags);
            }
            codes.push(java_hash(tag.as_bytes()));
        }
        Ok(match codes.len() {
            0 => Self::All,
            count if count <= FEW_MAX => Self::Few(codes.into()),
            _ => Self::Many(codes.into_iter().collect()),
        })
    }

    /// Returns whether an entry may match. Hashes may collide; the client compares the tag itself.
    #[inline]
    pub fn matches(&self, tags_code: i64) -> bool {
        // Apache's broker compares 32 bits of the code.
        let code = tags_code as i32;
        match self {
            Self::All => true,
            Self::Few(codes) => codes.contains(&code),
            Self::Many(codes) => is_one_of(codes, code),
        }
    }

    /// Returns the memory in addition to the enum itself.
    pub fn bytes(&self) -> usize {
        match self {
            Self::All | Self::Few(_) => 0,
            Self::Many(codes) => codes.allocation_size(),
        }
    }
}

/// Out of line: the rest is short enough to be inlined for each message.
#[inline(never)]
fn is_one_of(codes: &HashSet<i32>, code: i32) -> bool {
    codes.contains(&code)
}

/// The tags of a subscription, which a client compares with messages.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum TagFilter {
    /// Everything.
    All,
    /// One of these.
    Tags(Box<[Box<str>]>),
}

impl TagFilter {
    /// Parses `*`, an empty text, or `A || B`.
    pub fn parse(expression: &str) -> Self {
        let tags: Box<[Box<str>]> = tags(expression).map(Box::from).collect();
        if tags.is_empty() { Self::All } else { Self::Tags(tags) }
    }

    /// Returns whether a message with this tag matches.
    pub fn matches_tag(&self, tag: Option<&[u8]>) -> bool {
        match self {
            Self::All => true,
            Self::Tags(tags) => tag.is_some_and(|tag| tags.iter().any(|own| own.as_bytes() == tag)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_java() {
        let check = |text: &str, expected| assert_eq!(java_hash(text.as_bytes()), expected, "{text}");
        check("", 0);
        check("TagA", 2_598_919);
        check("TagB", 2_598_920);
        check("订单创建-order_created", 818_240_476);
        check("polygenelubricants", i32::MIN);
        // A character beyond U+FFFF is two units: U+1F600 = D83D DE00.
        check("\u{1F600}", 0xD83D * 31 + 0xDE00);
        // An invalid sequence is one U+FFFD.
        assert_eq!(java_hash(b"a\xFFb"), java_hash("a\u{FFFD}b".as_bytes()));
        check(
            "{\"clientID\":\"\",\"consumerDataSet\":[],\"heartbeatFingerprint\":0,\
             \"producerDataSet\":[{\"groupName\":\"pg\"}],\"withoutSub\":false}",
            941_838_008,
        );
    }

    #[test]
    fn index_hashes_are_never_negative() {
        assert_eq!(tag_key_hash(b"T1", b"TagA"), 1_433_669_564);
        assert_eq!(key_hash(b"T", b"k"), java_hash(b"T#k").abs());
        assert_eq!(positive(i32::MIN), 0);
        assert_eq!(positive(-5), 5);
    }

    #[test]
    fn a_missing_tag_has_code_zero_and_a_negative_hash_is_sign_extended() {
        assert_eq!(tags_code(b"KEYS\x01k\x02"), 0);
        assert_eq!(tags_code(b"TAGS\x01polygenelubricants\x02"), i64::from(i32::MIN));
    }

    #[test]
    fn a_subscription_matches_any_of_its_tags() {
        let expression = " TagA||TagB\u{1} || ";
        let codes = TagCodes::parse(expression).unwrap();
        assert!(codes.matches(2_598_919) && codes.matches(2_598_920));
        assert!(!codes.matches(0));
        let filter = TagFilter::parse(expression);
        assert!(filter.matches_tag(Some(b"TagB")));
        assert!(!filter.matches_tag(Some(b"Tag")) && !filter.matches_tag(None));
        for all in ["*", "", "  ", "||"] {
            assert_eq!(TagFilter::parse(all), TagFilter::All, "{all:?}");
            assert_eq!(TagCodes::parse(all), Ok(TagCodes::All), "{all:?}");
        }
        assert_ne!(TagFilter::parse("*||A"), TagFilter::All);
        assert_ne!(TagCodes::parse("*||A"), Ok(TagCodes::All));
    }

    #[test]
    fn the_tag_distinguishes_equal_hashes() {
        assert!(TagCodes::parse("Aa").unwrap().matches(i64::from(java_hash(b"BB"))));
        assert!(!TagFilter::parse("Aa").matches_tag(Some(b"BB")));
    }

    #[test]
    fn any_number_of_tags_up_to_the_bound_is_compared_alike() {
        for count in [1, FEW_MAX, FEW_MAX + 1, TAGS_MAX] {
            let tags: Vec<String> = (0..count).map(|index| format!("tag {index}")).collect();
            let codes = TagCodes::parse(&tags.join(" || ")).unwrap();
            assert!(tags.iter().all(|tag| codes.matches(i64::from(java_hash(tag.as_bytes())))));
            assert!(!codes.matches(0) && !codes.matches(i64::from(java_hash(b"tag 1000"))));
            assert!(codes.bytes() <= 16 << 10, "{} bytes", codes.bytes());
        }
        assert_eq!(TagCodes::parse(&"A||".repeat(TAGS_MAX + 1)), Err(TooManyTags));
    }
}
