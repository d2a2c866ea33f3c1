//! Networks: the addresses an entry of a policy is about, one or a block of them in CIDR notation.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that begin with the same bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Bits that count.
    bits: u8,
}

impl Network {
    /// Reads `10.0.0.7`, `10.0.0.0/8`, `fd00::1` or `fd00::/8`; `None` for anything else.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().ok()?;
        let bits_max = if address.is_ipv4() { Ipv4Addr::BITS } else { Ipv6Addr::BITS } as u8;
        let bits = match bits {
            None => bits_max,
            // A sign, which `parse` takes, is no notation of anybody's.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (bits <= bits_max).then_some(Self { address, bits })
    }

    /// Whether `address` is one of them. An IPv4 address that came in over IPv6 is an IPv4 address.
    #[must_use]
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let differing = network.to_bits() ^ address.to_bits();
                differing.leading_zeros() >= u32::from(self.bits)
            }
            _ => false,
        }
    }
}

/// The address that failures are counted of: an IPv4 address, or the network of 64 bits that one IPv6 host may have all
/// of.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}
