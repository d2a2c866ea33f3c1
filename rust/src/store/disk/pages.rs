//! Pages of a mapped file: prefaults, and advice to the kernel on their size.
//!
//! Advice on part of a mapping splits it. For that the kernel waits for all users of the file's mappings, such as a
//! flush on each of its pages. So advice is given per window, not per step.
//!
//! Threads: any.

use std::io;
use std::ops::Range;

use memmap2::{Advice, MmapRaw};
use parking_lot::Mutex;

/// Bytes prefaulted per step.
const POPULATE_BYTES: usize = 64 << 10;
/// Bytes covered by one advice.
const WINDOW_BYTES: usize = 16 << 20;

#[derive(Default, Debug)]
pub(super) struct Pages {
    advised: Mutex<Advised>,
}

#[derive(Default, Debug)]
struct Advised {
    /// Whether the kernel was advised to use large pages.
    large: bool,
    /// The start of the pages that are loaded one by one, if any; they end where the file does.
    one_by_one: Option<usize>,
}

impl Pages {
    /// Prefaults the pages of `range` for writing, in small steps: each holds the lock of the address space, which
    /// threads that allocate memory may wait for.
    pub(super) fn populate(&self, memory: &MmapRaw, range: Range<usize>) -> io::Result<()> {
        self.bring_one_by_one(memory, range.start / WINDOW_BYTES * WINDOW_BYTES)?;
        let populated = range.clone().step_by(POPULATE_BYTES).try_for_each(|at| {
            memory.advise_range(Advice::PopulateWrite, at, POPULATE_BYTES.min(range.end - at))
        });
        if populated.is_err() || range.end == memory.len() {
            self.bring_one_by_one(memory, memory.len())?;
        }
        populated
    }

    /// Makes the kernel load small pages from `start` on one by one. Otherwise a missing page loads as many as the
    /// device reads ahead, up to 8 MiB, in one uninterruptible fault. Pages before `start` keep readahead, for
    /// readers of pages that the kernel has evicted.
    fn bring_one_by_one(&self, memory: &MmapRaw, start: usize) -> io::Result<()> {
        let mut advised = self.advised.lock();
        match advised.one_by_one {
            _ if advised.large => return Ok(()),
            None => memory.advise_range(Advice::Random, start, memory.len() - start)?,
            Some(before) if before < start => memory.advise_range(Advice::Normal, before, start - before)?,
            Some(_) => return Ok(()),
        }
        advised.one_by_one = Some(start);
        Ok(())
    }

    /// Makes the kernel load pages of 2 MiB where some are missing, or small ones again. A large page loads in a
    /// sixth of the time of small ones for the same bytes, but a write to one byte makes all of it dirty. Fails if
    /// the kernel has no large pages.
    pub(super) fn use_large(&self, memory: &MmapRaw, large: bool) -> io::Result<()> {
        let mut advised = self.advised.lock();
        memory.advise(if large { Advice::HugePage } else { Advice::NoHugePage })?;
        // Large pages one at a time, small ones with readahead for readers.
        memory.advise(if large { Advice::Random } else { Advice::Normal })?;
        *advised = Advised { large, one_by_one: None };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::path::{Path, PathBuf};

    use memmap2::MmapOptions;

    use super::*;

    const MIB: usize = 1 << 20;

    /// Maps a file of `len` bytes.
    fn mapped(name: &str, len: usize) -> (PathBuf, MmapRaw) {
        let path = std::env::temp_dir().join(format!("rmqpy-{}-{name}", std::process::id()));
        let file = File::options().create_new(true).read(true).write(true).open(&path).expect("a new file");
        file.set_len(len as u64).expect("room");
        let memory = MmapOptions::new().len(len).map_raw(&file).expect("a mapping");
        (path, memory)
    }

    /// Returns the ranges, in MiB, of a file's mapping that have this flag, two letters, in the kernel.
    fn flagged(path: &Path, flag: &str) -> Vec<Range<usize>> {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("this process");
        let mut found = Vec::new();
        let mut at = None;
        for line in maps.lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            if let [addresses, _, offset, _, _, name] = words[..] {
                let ends: Vec<_> = addresses.split('-').map(|end| usize::from_str_radix(end, 16)).collect();
                if let ([Ok(start), Ok(end)], Ok(offset)) = (&ends[..], usize::from_str_radix(offset, 16)) {
                    at = (name == path.to_str().expect("a name")).then_some(offset..offset + end - start);
                }
            } else if words.contains(&flag) && words.first() == Some(&"VmFlags:") {
                found.extend(at.take().map(|bytes| bytes.start / MIB..bytes.end / MIB));
            }
        }
        found
    }

    #[test]
    fn pages_come_one_by_one_until_they_are_there_and_are_read_ahead_then() {
        let (path, memory) = mapped("windows", 40 * MIB);
        let pages = Pages::default();
        for (range, one_by_one) in [
            (5000..3 * MIB, Some(0..40)),
            (3 * MIB..16 * MIB, Some(0..40)),
            (16 * MIB..17 * MIB, Some(16..40)),
            (2 * MIB..3 * MIB, Some(16..40)),
            (31 * MIB..33 * MIB, Some(16..40)),
            (33 * MIB..34 * MIB, Some(32..40)),
            (39 * MIB..40 * MIB, None),
            (38 * MIB..39 * MIB, None),
        ] {
            pages.populate(&memory, range.clone()).expect("pages");
            assert_eq!(flagged(&path, "rr"), Vec::from_iter(one_by_one), "{range:?}");
        }
        std::fs::remove_file(&path).expect("the file");
    }

    #[test]
    fn large_pages_come_one_at_a_time_throughout_the_file() {
        let (path, memory) = mapped("large", 8 * MIB);
        let pages = Pages::default();
        pages.populate(&memory, 0..MIB).expect("pages");
        if pages.use_large(&memory, true).is_ok() {
            pages.populate(&memory, 3 * MIB..8 * MIB).expect("pages");
            let all = Vec::from_iter(Some(0..8));
            assert_eq!((flagged(&path, "hg"), flagged(&path, "rr")), (all.clone(), all));
            pages.use_large(&memory, false).expect("small pages");
            assert_eq!((flagged(&path, "hg"), flagged(&path, "rr")), (vec![], vec![]));
        }
        std::fs::remove_file(&path).expect("the file");
    }
}
