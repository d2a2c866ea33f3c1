//! Disk state: names and bytes of a simulated disk, as the process sees them and as a power loss would leave them.
//!
//! Owns the snapshot of one moment, and computes its state after a crash. Everything is under the disk's lock.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::store::disk::Space;
use crate::store::disk::region::Region;

/// The unsynced changes that survive a crash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Survival {
    /// No change: the power failed before the disk did anything.
    Nothing,
    /// Every change: the process was killed, but the machine kept running.
    Everything,
    /// All: the process was killed, and then the machine restarted in order.
    Reboot,
    /// In every file the sectors before a random one, and of the names the changes before a random one.
    Prefix,
    /// Each with this probability in percent, independently.
    Percent(u8),
}

/// A planned failure of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    /// Number of the operation, from 0.
    pub operation: u64,
    /// All later operations fail, too.
    pub is_lasting: bool,
    pub kind: io::ErrorKind,
}

/// Bytes that a disk writes atomically.
const SECTOR_BYTES: usize = 512;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Node {
    Dir,
    File(u64),
}

pub(super) type Names = BTreeMap<PathBuf, Node>;

/// A change of names that a sync of its directory makes durable.
#[derive(Clone)]
pub(super) struct Change {
    pub(super) dir: PathBuf,
    /// The nodes at these paths afterwards.
    pub(super) after: Vec<(PathBuf, Option<Node>)>,
}

#[derive(Default)]
pub(super) struct DiskState {
    pub(super) names: Names,
    pub(super) durable_names: Names,
    pub(super) changes: Vec<Change>,
    pub(super) files: HashMap<u64, File>,
    pub(super) files_made: u64,
    pub(super) operations: u64,
    pub(super) freeze_at: Option<u64>,
    pub(super) frozen: Option<Box<DiskImage>>,
    pub(super) fault: Option<Fault>,
    /// Folder where writes fail, and the error.
    pub(super) broken: Option<(PathBuf, io::ErrorKind)>,
    /// Whether files cannot be opened for direct writes.
    pub(super) refuses_direct: bool,
    pub(super) locks: BTreeSet<PathBuf>,
    /// Number of boots of the machine.
    pub(super) boot: u128,
    /// The space reported for a path.
    pub(super) space: Space,
    /// Folders with their own file system, for the reported space only.
    pub(super) space_of: Vec<(PathBuf, Space)>,
}

#[derive(Default)]
pub(super) struct File {
    pub(super) contents: Contents,
    pub(super) durable: Vec<u8>,
    /// The newest read-only mapping, which shows writes to the file.
    pub(super) shown: Option<Region>,
    /// Sectors of a failed sync: the kernel treats them as clean, and does not write them until they change.
    pub(super) dropped: BTreeSet<usize>,
}

impl Default for Contents {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

pub(super) enum Contents {
    Bytes(Vec<u8>),
    Mapped(Region),
}

pub(super) struct DiskImage {
    pub(super) durable_names: Names,
    pub(super) changes: Vec<Change>,
    pub(super) files: HashMap<u64, (Vec<u8>, Vec<u8>)>,
    pub(super) files_made: u64,
    pub(super) boot: u128,
}

impl DiskState {
    /// Counts an operation; fails if a failure is planned.
    pub(super) fn count(&mut self) -> io::Result<()> {
        let operation = self.operations;
        self.operations += 1;
        if self.freeze_at.is_some_and(|at| operation >= at) {
            if self.frozen.is_none() {
                self.freeze();
            }
            return Err(io::Error::other("the simulated disk has stopped"));
        }
        match self.fault {
            Some(fault)
                if operation == fault.operation || (fault.is_lasting && operation > fault.operation) =>
            {
                Err(fault.kind.into())
            }
            _ => Ok(()),
        }
    }

    /// Fails for a file below the broken folder.
    pub(super) fn check_place(&self, id: u64) -> io::Result<()> {
        let Some((place, kind)) = &self.broken else { return Ok(()) };
        let is_there = |(path, node): (&PathBuf, &Node)| *node == Node::File(id) && path.starts_with(place);
        if self.names.iter().any(is_there) { Err((*kind).into()) } else { Ok(()) }
    }

    pub(super) fn freeze(&mut self) {
        let files = self.files.iter().map(|(id, file)| (*id, (file.contents.bytes(), file.durable.clone())));
        self.frozen = Some(Box::new(DiskImage {
            durable_names: self.durable_names.clone(),
            changes: self.changes.clone(),
            files: files.collect(),
            files_made: self.files_made,
            boot: self.boot,
        }));
    }

    pub(super) fn rename_all(&mut self, dir: &Path, after: Vec<(PathBuf, Option<Node>)>) {
        apply(&mut self.names, &after);
        self.changes.push(Change { dir: dir.to_owned(), after });
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) {
        let (synced, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.changes).into_iter().partition(|change| change.dir == dir);
        self.changes = rest;
        synced.iter().for_each(|change| apply(&mut self.durable_names, &change.after));
    }

    pub(super) fn file(&mut self, id: u64) -> io::Result<&mut File> {
        self.files.get_mut(&id).ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

fn apply(names: &mut Names, after: &[(PathBuf, Option<Node>)]) {
    for (path, node) in after {
        match node {
            Some(node) => names.insert(path.clone(), *node),
            None => names.remove(path),
        };
    }
}

impl Contents {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Bytes(bytes) => bytes.len(),
            Self::Mapped(region) => region.len(),
        }
    }

    pub(super) fn view(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Bytes(bytes) => Cow::Borrowed(bytes),
            Self::Mapped(region) => Cow::Owned(region.snapshot()),
        }
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.view().into_owned()
    }
}

impl File {
    /// Returns the bytes to change with a file operation. An earlier writable mapping continues with its own copy:
    /// the store never writes to a file that it has mapped that way.
    pub(super) fn bytes(&mut self) -> &mut Vec<u8> {
        if let Contents::Mapped(region) = &self.contents {
            self.contents = Contents::Bytes(region.snapshot());
        }
        match &mut self.contents {
            Contents::Bytes(bytes) => bytes,
            Contents::Mapped(_) => unreachable!("replaced above"),
        }
    }

    pub(super) fn sync(&mut self, range: Range<usize>) {
        let now = self.contents.view();
        self.durable.resize(now.len(), 0);
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        for sector in sectors.filter(|sector| !self.dropped.contains(sector)) {
            copy_sector(&now, &mut self.durable, sector);
        }
    }

    pub(super) fn dirty(&mut self, range: Range<usize>) {
        let sectors = range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES);
        self.dropped.retain(|sector| !sectors.contains(sector));
    }

    pub(super) fn drop_dirty(&mut self, range: Range<usize>) {
        self.dropped.extend(range.start / SECTOR_BYTES..range.end.div_ceil(SECTOR_BYTES));
    }
}

fn copy_sector(from: &[u8], into: &mut [u8], sector: usize) {
    let start = sector * SECTOR_BYTES;
    let end = (start + SECTOR_BYTES).min(from.len()).min(into.len());
    if start < end {
        into[start..end].copy_from_slice(&from[start..end]);
    }
}

impl DiskImage {
    pub(super) fn crash(&self, survival: Survival, rng: &mut Rng) -> DiskState {
        let mut names = self.durable_names.clone();
        let survivors = rng.choose(survival, self.changes.len());
        for (change, survives) in self.changes.iter().zip(survivors) {
            if survives {
                apply(&mut names, &change.after);
            }
        }
        // Entries of a directory that is gone are gone, too.
        let all = names.clone();
        names.retain(|path, _| path.ancestors().skip(1).all(|parent| all.get(parent) == Some(&Node::Dir)));
        let mut ids: Vec<_> = self.files.keys().copied().collect();
        ids.sort_unstable();
        let files = ids.into_iter().filter_map(|id| {
            let (now, durable) = self.files.get(&id)?;
            let bytes = after_crash(now, durable, survival, rng);
            let file = File { contents: Contents::Bytes(bytes.clone()), durable: bytes, ..File::default() };
            Some((id, file))
        });
        let files = files.collect();
        let durable_names = names.clone();
        // The machine continues when a process is killed.
        let boot = self.boot + u128::from(survival != Survival::Everything);
        DiskState { names, durable_names, files, files_made: self.files_made, boot, ..DiskState::default() }
    }
}

fn after_crash(now: &[u8], durable: &[u8], survival: Survival, rng: &mut Rng) -> Vec<u8> {
    let has_new_size = rng.choose(survival, 1).first() == Some(&true);
    let mut bytes = durable.to_vec();
    if has_new_size {
        bytes.resize(now.len(), 0);
    }
    let sector = |bytes: &'_ [u8], index: usize| {
        let start = (index * SECTOR_BYTES).min(bytes.len());
        start..(start + SECTOR_BYTES).min(bytes.len())
    };
    let dirty: Vec<usize> = (0..now.len().div_ceil(SECTOR_BYTES))
        .filter(|index| now[sector(now, *index)] != bytes[sector(&bytes, *index)])
        .collect();
    let survivors = rng.choose(survival, dirty.len());
    for (index, survives) in dirty.into_iter().zip(survivors) {
        if survives {
            copy_sector(now, &mut bytes, index);
        }
    }
    bytes
}

/// A pseudo-random sequence from a seed (splitmix64).
pub(super) struct Rng(pub(super) u64);

impl Rng {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(super) fn choose(&mut self, survival: Survival, count: usize) -> Vec<bool> {
        match survival {
            Survival::Nothing => vec![false; count],
            Survival::Everything | Survival::Reboot => vec![true; count],
            Survival::Prefix => {
                let end = self.next() % (count as u64 + 1);
                (0..count as u64).map(|index| index < end).collect()
            }
            Survival::Percent(percent) => {
                (0..count).map(|_| self.next() % 100 < u64::from(percent)).collect()
            }
        }
    }
}
