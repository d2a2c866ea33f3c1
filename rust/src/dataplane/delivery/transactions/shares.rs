//! Shares: limits of open halves for each producer group and each sending address.
//!
//! A client that never decides fills only its own share. Values without I/O, under the lock of the transactions;
//! groups and addresses without open halves are removed.

use std::borrow::Borrow;
use std::hash::Hash;
use std::net::IpAddr;

use hashbrown::HashMap;

/// The maximum number of open halves of a producer group.
const OF_GROUP_MAX: u32 = 1 << 18;
/// The maximum number of open halves from one address.
const OF_CLIENT_MAX: u32 = 1 << 17;

/// The indices of a half's group and client in the tables.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Owner {
    group: u32,
    client: u32,
}

/// The share that is full.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::dataplane) enum Full {
    Group(u32),
    Client(u32),
    All,
}

#[derive(Debug, Default)]
pub(super) struct Shares {
    groups: Counts<Box<str>>,
    clients: Counts<IpAddr>,
}

impl Shares {
    pub(super) fn add(&mut self, group: &str, client: IpAddr) -> Owner {
        Owner { group: self.groups.add(group, || group.into()), client: self.clients.add(&client, || client) }
    }

    pub(super) fn remove(&mut self, owner: Owner) {
        self.groups.remove(owner.group);
        self.clients.remove(owner.client);
    }

    /// Returns the share that leaves no room for another half.
    pub(super) fn full(&self, group: &str, client: IpAddr) -> Option<Full> {
        if self.groups.count(group) >= OF_GROUP_MAX {
            return Some(Full::Group(OF_GROUP_MAX));
        }
        (self.clients.count(&client) >= OF_CLIENT_MAX).then_some(Full::Client(OF_CLIENT_MAX))
    }
}

/// Counts by key, each at a stable index.
#[derive(Debug)]
struct Counts<K> {
    places: HashMap<K, u32>,
    table: Vec<Option<(K, u32)>>,
    free: Vec<u32>,
}

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { places: HashMap::new(), table: Vec::new(), free: Vec::new() }
    }
}

impl<K: Eq + Hash + Clone> Counts<K> {
    fn add<Q: Eq + Hash + ?Sized>(&mut self, key: &Q, own: impl FnOnce() -> K) -> u32
    where
        K: Borrow<Q>,
    {
        let place = self.places.get(key).copied().unwrap_or_else(|| {
            let place = self.free.pop().unwrap_or_else(|| {
                self.table.push(None);
                (self.table.len() - 1) as u32
            });
            let key = own();
            self.places.insert(key.clone(), place);
            self.table.get_mut(place as usize).into_iter().for_each(|entry| *entry = Some((key.clone(), 0)));
            place
        });
        self.entry(place).into_iter().flatten().for_each(|(_, count)| *count += 1);
        place
    }

    fn remove(&mut self, place: u32) {
        let Some(entry) = self.entry(place) else { return };
        if let Some((key, count)) = entry {
            *count = count.saturating_sub(1);
            if *count == 0 {
                let key = key.clone();
                *entry = None;
                self.places.remove(&key);
                self.free.push(place);
            }
        }
    }

    fn count<Q: Eq + Hash + ?Sized>(&self, key: &Q) -> u32
    where
        K: Borrow<Q>,
    {
        let place = self.places.get(key);
        let entry = place.and_then(|place| self.table.get(*place as usize)?.as_ref());
        entry.map_or(0, |(_, count)| *count)
    }

    fn entry(&mut self, place: u32) -> Option<&mut Option<(K, u32)>> {
        self.table.get_mut(place as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(number: u8) -> IpAddr {
        [10, 0, 0, number].into()
    }

    #[test]
    fn a_full_share_leaves_room_to_others() {
        let mut shares = Shares::default();
        let owners: Vec<Owner> = (0..OF_CLIENT_MAX).map(|_| shares.add("endless", address(1))).collect();
        assert_eq!(shares.full("endless", address(1)), Some(Full::Client(OF_CLIENT_MAX)));
        assert_eq!(shares.full("orders", address(1)), Some(Full::Client(OF_CLIENT_MAX)));
        assert_eq!(shares.full("endless", address(2)), None);
        (0..OF_CLIENT_MAX).for_each(|_| _ = shares.add("endless", address(2)));
        assert_eq!(shares.full("endless", address(3)), Some(Full::Group(OF_GROUP_MAX)));
        assert_eq!(shares.full("orders", address(3)), None);
        owners.into_iter().for_each(|owner| shares.remove(owner));
        assert_eq!(shares.full("orders", address(1)), None);
    }

    #[test]
    fn an_unused_share_is_removed_and_its_index_reused() {
        let mut shares = Shares::default();
        for number in 0..1_000 {
            let owner = shares.add(&format!("group {number}"), address(1));
            shares.remove(owner);
        }
        assert_eq!((shares.groups.places.len(), shares.groups.table.len()), (0, 1));
    }
}
