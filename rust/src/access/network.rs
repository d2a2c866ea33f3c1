//! Networks: an address, or a block in CIDR notation, to which an entry of a policy applies.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses with a common prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    /// Length of the prefix in bits.
    bits: u8,
}

impl Network {
    /// Parses `10.0.0.7`, `10.0.0.0/8`, `fd00::1` or `fd00::/8`; returns `None` for anything else.
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
            // `parse` accepts a sign, which CIDR notation does not have.
            Some(bits) if bits.bytes().all(|byte| byte.is_ascii_digit()) => bits.parse().ok()?,
            Some(_) => return None,
        };
        (bits <= bits_max).then_some(Self { address, bits })
    }

    /// Returns whether the network contains `address`. An IPv4-mapped IPv6 address counts as IPv4.
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

/// Returns the address that failures are counted for: an IPv4 address, or the 64-bit network of an IPv6 address, all
/// of which one host may have.
#[must_use]
pub fn host_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}
