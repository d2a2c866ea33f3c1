//! Messages in copies of the log: any selection is that of a reader of single records, and damage is found.

use proptest::prelude::*;
use rmqpy::store::{CopyError, Room, group_units};

/// The copied file begins here in the log.
const BEGIN: u64 = 1 << 30;
const FIRST: u64 = 40;
const WANTED: i64 = 7;

/// A message of the queue: bytes of other queues before its record, bytes of its body, and whether its tag is wanted.
/// Without a body it is a lost one.
type Placed = (usize, Option<usize>, bool);

/// A copied file, its entries of one queue, and the records by offset that a reader should see.
struct Copy {
    log: Vec<u8>,
    units: Vec<u8>,
    expected: Vec<(u64, Vec<u8>)>,
}

fn copy_of(placed: &[Placed]) -> Copy {
    let mut copy = Copy { log: Vec::new(), units: Vec::new(), expected: Vec::new() };
    for ((gap, body, is_wanted), offset) in placed.iter().zip(FIRST..) {
        copy.log.resize(copy.log.len() + gap, 0xEE);
        let physical = BEGIN + copy.log.len() as u64;
        let size = body.map_or(1, |body| 91 + body);
        copy.units.extend(physical.to_be_bytes());
        copy.units.extend((size as u32).to_be_bytes());
        copy.units.extend(if *is_wanted { WANTED } else { 0 }.to_be_bytes());
        if body.is_none() {
            continue;
        }
        let mut record = vec![offset as u8; size];
        record[..4].copy_from_slice(&(size as u32).to_be_bytes());
        record[28..36].copy_from_slice(&physical.to_be_bytes());
        copy.log.extend(&record);
        if *is_wanted {
            copy.expected.push((offset, record));
        }
    }
    copy
}

/// Reads the file to its end in pages, as a broker does; returns the pages' messages, and their sizes.
fn pages(copy: &Copy, count: usize, bytes: usize) -> Result<Vec<Vec<u8>>, CopyError> {
    let (mut found, mut offset) = (Vec::new(), FIRST);
    let file = BEGIN..BEGIN + copy.log.len() as u64;
    'pages: loop {
        let mut room = Room { count, bytes, is_empty: true };
        let mut page = Vec::new();
        let units = &copy.units[(offset - FIRST) as usize * 20..];
        for group in group_units(units, offset, &file, count, bytes as u64, |code| code == WANTED)? {
            let range = group.range();
            let part = &copy.log[(range.start - BEGIN) as usize..(range.end - BEGIN) as usize];
            let selected = group.select(part, room, |_| true)?;
            for range in &selected.parts {
                page.extend(&part[range.clone()]);
            }
            room.count -= selected.count.min(room.count);
            room.bytes = bytes.saturating_sub(page.len());
            room.is_empty &= selected.count == 0;
            if let Some(refused) = selected.refused {
                assert!(refused > offset, "every page has a message");
                offset = refused;
                found.push(page);
                continue 'pages;
            }
        }
        found.push(page);
        return Ok(found);
    }
}

fn placed() -> impl Strategy<Value = Vec<Placed>> {
    let gap = prop_oneof![Just(0_usize), 1..40_usize, 10_000..30_000_usize];
    let body = prop_oneof![8 => (0..300_usize).prop_map(Some), 1 => Just(None)];
    proptest::collection::vec((gap, body, prop::bool::weighted(0.8)), 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn pages_have_each_wanted_message_once_in_order(
        placed in placed(),
        count in 1..20_usize,
        bytes in 1..4_000_usize,
    ) {
        let copy = copy_of(&placed);
        let pages = pages(&copy, count, bytes).expect("a sound copy");
        let expected: Vec<u8> = copy.expected.iter().flat_map(|(_, record)| record.clone()).collect();
        prop_assert_eq!(pages.concat(), expected);
        let larger = pages.iter().filter(|page| page.len() > bytes);
        let largest = copy.expected.iter().map(|(_, record)| record.len()).max().unwrap_or(0);
        for page in larger {
            prop_assert!(page.len() <= largest, "one message that is larger than a page");
        }
    }

    #[test]
    fn a_damaged_entry_or_record_is_refused_or_unread(
        placed in placed(),
        at in any::<prop::sample::Index>(),
        is_entry in any::<bool>(),
        flip in 1..=255_u8,
    ) {
        let sound = copy_of(&placed);
        let mut copy = copy_of(&placed);
        let bytes = if is_entry || copy.log.is_empty() { &mut copy.units } else { &mut copy.log };
        let at = at.index(bytes.len());
        bytes[at] ^= flip;
        // Tags and bodies have no check here; a lost message may not become a record, nor the other way round.
        if let Ok(found) = pages(&copy, 5, 2_000) {
            let of_tag = is_entry && at % 20 >= 12;
            let sizes: usize = found.iter().map(Vec::len).sum();
            let expected: usize = sound.expected.iter().map(|(_, record)| record.len()).sum();
            let became_lost = copy.units.chunks(20).any(|unit| unit[8..12] == 1_u32.to_be_bytes());
            prop_assert!(of_tag || became_lost || sizes == expected);
        }
    }
}
