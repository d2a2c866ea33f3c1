//! System flag: the bits of a message's system flag.

/// Body is compressed.
pub const COMPRESSED: i32 = 0x1;
/// More than one tag; brokers and clients ignore it.
pub(crate) const MULTI_TAGS: i32 = 0x2;
/// The two bits of the transaction state; 0 is an ordinary message.
pub(crate) const TRANSACTION_MASK: i32 = 0xC;
/// A half message.
pub(crate) const PREPARED: i32 = 0x4;
/// A rolled back half message.
pub(crate) const ROLLBACK: i32 = 0xC;
/// The born host takes 16 address bytes instead of 4.
pub const BORN_HOST_V6: i32 = 0x10;
/// The store host takes 16 address bytes instead of 4.
pub const STORE_HOST_V6: i32 = 0x20;
/// The body is an inner batch that the consumer must unwrap.
pub const NEEDS_UNWRAP: i32 = 0x40;
/// One record carries many messages.
pub const INNER_BATCH: i32 = 0x80;
/// The three bits of the compression type.
pub(crate) const COMPRESSION_MASK: i32 = 0x700;

/// Returns the part of a client's flag that is stored.
///
/// The address bits define the record's layout, so a client must not set them. Apache's broker stores them unchanged,
/// and a send with `0x30` over IPv4 leaves an unparsable record.
pub const fn from_client(sys_flag: i32) -> i32 {
    sys_flag & (COMPRESSED | MULTI_TAGS | TRANSACTION_MASK | COMPRESSION_MASK)
}

/// Returns whether a record has an entry in its queue. Half and rolled back messages have none, and inner batches
/// are in queues of another kind.
pub(crate) const fn is_queued(sys_flag: i32) -> bool {
    sys_flag & INNER_BATCH == 0 && !matches!(sys_flag & TRANSACTION_MASK, PREPARED | ROLLBACK)
}

/// Returns whether a record can be looked up by key: rolled back messages cannot.
pub(crate) const fn is_indexed(sys_flag: i32) -> bool {
    sys_flag & TRANSACTION_MASK != ROLLBACK
}

/// The compression of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Compression {
    /// RFC 1950; the only type that Go and C++ clients read, and the meaning of type zero.
    Zlib,
    /// LZ4 frame format, independent blocks.
    Lz4,
    /// Zstandard frame.
    Zstd,
}

impl Compression {
    /// Returns the type in the flag bits, even if the body is not compressed.
    pub(crate) const fn from_sys_flag(sys_flag: i32) -> Option<Self> {
        match (sys_flag & COMPRESSION_MASK) >> 8 {
            0 | 3 => Some(Self::Zlib),
            1 => Some(Self::Lz4),
            2 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// Returns the bits of this compression.
    pub const fn sys_flag(self) -> i32 {
        COMPRESSED
            | match self {
                Self::Zlib => 0x300,
                Self::Lz4 => 0x100,
                Self::Zstd => 0x200,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_set_address_or_inner_batch_bits() {
        assert_eq!(from_client(0x30), 0);
        assert_eq!(from_client(-1), 0x70F);
        assert_eq!(from_client(0x301 | PREPARED), 0x305);
    }

    #[test]
    fn compression_bits_round_trip() {
        for kind in [Compression::Zlib, Compression::Lz4, Compression::Zstd] {
            assert_eq!(Compression::from_sys_flag(kind.sys_flag()), Some(kind));
        }
        assert_eq!(Compression::from_sys_flag(COMPRESSED), Some(Compression::Zlib));
        assert_eq!(Compression::from_sys_flag(0x401), None);
    }
}
