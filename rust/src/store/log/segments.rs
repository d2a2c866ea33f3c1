//! Segments: the fixed-size files of the log as one address space.
//!
//! Owns the list of CommitLog files. A file is named by the position of its first byte, has its full size from the
//! moment it appears, and follows the previous one without a gap. The next file is created before it is needed, so
//! that a full disk fails there and never in the middle of a message.
//!
//! *Invariant*: all files have the size that the folder records; only the last file with any bytes is written.
//! Threads: any may read; `create` and `cut` from one at a time (recovery, then maintenance).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::store::disk::{Appender, Disk, DiskFile, Open, Space, name_of, position_of};
use crate::store::error::StoreError;

use super::ring::{Part, WriteRing};
use super::segment::Segment;
use super::write_path::WritePathKind;

/// Smallest file that is accepted as a CommitLog file.
const SEGMENT_BYTES_MIN: u64 = 4096;

/// The file to write next, and with the mapping as write path the permission to write it.
pub(crate) type Active = (Arc<Segment>, Option<Appender>);

pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    scratch: PathBuf,
    size: u64,
    write_path: WritePathKind,
    /// The write ring, if it is the write path: the end of the log is read there.
    ring: Option<Arc<WriteRing>>,
    list: ArcSwap<Vec<Arc<Segment>>>,
}

impl Segments {
    /// Loads the files of `dir`, each as readable to its end; recovery cuts afterwards.
    ///
    /// The size of existing files takes precedence over `size_wanted`. A file is created as `scratch`, outside
    /// `dir`, where an Apache broker would take it for a segment.
    pub(crate) fn load(
        disk: Arc<dyn Disk>,
        dir: PathBuf,
        scratch: PathBuf,
        size_wanted: u64,
        write_path: WritePathKind,
    ) -> Result<Self, StoreError> {
        let mut files = Vec::new();
        for entry in disk.entries(&dir)? {
            match position_of(&entry.name) {
                Some(base) if !entry.is_dir => files.push((base, dir.join(&entry.name), entry.size)),
                _ => {}
            }
        }
        // A crash of Apache's broker between creating and extending its newest file leaves it empty.
        if let Some((_, path, 0)) = files.last() {
            disk.remove(path).map_err(StoreError::io(path, "remove the empty last segment"))?;
            files.pop();
        }
        let size = match most_frequent_size(&files) {
            Some((path, size)) => segment_size(path, size)?,
            None => size_wanted,
        };
        let segments = Self {
            disk,
            dir,
            scratch,
            size,
            write_path,
            ring: None,
            list: ArcSwap::from_pointee(Vec::with_capacity(files.len())),
        };
        let last = files.len().saturating_sub(1);
        let mut list: Vec<Arc<Segment>> = Vec::with_capacity(files.len());
        for (index, (base, path, found)) in files.into_iter().enumerate() {
            if let Some(before) = list.last().filter(|before| before.limit() != base) {
                let expected = format!(
                    "expected the segment that follows {}, at position {}; a file of the log is missing or misnamed",
                    before.path().display(),
                    before.limit()
                );
                return Err(StoreError::Layout { path, expected });
            }
            if found > size && index != last {
                let expected =
                    format!("expected {size} bytes, the size of other segments, and found {found}");
                return Err(StoreError::Layout { path, expected });
            }
            list.push(Arc::new(segments.open(base, path, found)?));
        }
        segments.list.store(Arc::new(list));
        Ok(segments)
    }

    fn open(&self, base: u64, path: PathBuf, found: u64) -> Result<Segment, StoreError> {
        let file = self.disk.open(&path, Open::Write).map_err(StoreError::io(&path, "open"))?;
        if found != self.size {
            // Truncated, or the last file, padded by a copy. Its records are still checked one by one; missing ones
            // are damage.
            file.resize(self.size).map_err(StoreError::io(&path, "restore the size"))?;
            file.sync().map_err(StoreError::io(&path, "sync"))?;
        }
        let (segment, _) = self.map(file, base, path, self.size)?;
        Ok(segment)
    }

    /// Maps a file whose first `published` bytes are records; for writing if it is not full and the write path maps.
    fn map(
        &self,
        file: Arc<dyn DiskFile>,
        base: u64,
        path: PathBuf,
        published: u64,
    ) -> Result<(Segment, Option<Appender>), StoreError> {
        let is_written = published < self.size && self.write_path == WritePathKind::Mapping;
        Segment::map(file, base, path, self.size, (published, is_written))
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn space(&self) -> Result<Space, StoreError> {
        self.disk.space(&self.dir).map_err(StoreError::io(&self.dir, "measure the free space of"))
    }

    pub(crate) fn write_path(&self) -> WritePathKind {
        self.write_path
    }

    pub(crate) fn set_write_ring(&mut self, ring: WriteRing) {
        self.ring = Some(Arc::new(ring));
    }

    pub(crate) fn write_ring(&self) -> Option<&Arc<WriteRing>> {
        self.ring.as_ref()
    }

    /// Returns the part of the write ring that holds position `at`.
    pub(crate) fn part_at(&self, at: u64) -> Option<Arc<Part>> {
        self.ring.as_ref()?.find(at)
    }

    pub(crate) fn all(&self) -> Arc<Vec<Arc<Segment>>> {
        self.list.load_full()
    }

    /// Returns the position of the first byte of the log, or 0 without files.
    pub(crate) fn begin(&self) -> u64 {
        self.list.load().first().map_or(0, |segment| segment.base())
    }

    /// Returns the file that holds position `at`.
    pub(crate) fn find(&self, at: u64) -> Option<Arc<Segment>> {
        let list = self.list.load();
        let index = at.checked_sub(list.first()?.base())? / self.size;
        list.get(usize::try_from(index).ok()?).cloned()
    }

    /// Returns whether the bytes of `range` are in memory, or those of its first file.
    pub(crate) fn is_resident(&self, range: Range<u64>) -> bool {
        self.part_at(range.start).is_some()
            || self.find(range.start).is_some_and(|file| file.is_resident(range))
    }

    /// Returns `size` readable bytes at `at`; `None` unless all of them are in one file and published.
    pub(crate) fn slice(&self, at: u64, size: usize) -> Option<Bytes> {
        if let Some(part) = self.part_at(at) {
            return part.bytes_from(at).get(..size).map(Bytes::copy_from_slice);
        }
        let segment = self.find(at)?;
        let view = segment.view(at.checked_add(size as u64)?);
        let start = (at - segment.base()) as usize;
        (start + size <= view.len()).then(|| view.slice(start..start + size))
    }

    /// Writes the write ring to the log's files; `note` receives the position of each whole block and its CRC-32.
    pub(crate) fn write_from_ring(&self, note: impl FnMut(u64, u32)) -> Result<(), StoreError> {
        self.ring.as_ref().map_or(Ok(()), |ring| ring.write(|base| self.find(base), note))
    }

    /// Makes everything in `range` durable, oldest first.
    pub(crate) fn sync(&self, range: Range<u64>) -> Result<(), StoreError> {
        for segment in self.list.load().iter() {
            if segment.limit() > range.start && segment.base() < range.end {
                segment.sync(range.clone()).map_err(StoreError::io(segment.path(), "flush"))?;
            }
        }
        Ok(())
    }

    /// Returns the number of bytes after `end`, in its file and later ones, up to the last that is not zero.
    pub(crate) fn used_behind(&self, end: u64) -> u64 {
        const ZEROS: [u8; 4096] = [0; 4096];
        let list = self.list.load();
        let behind = list.iter().filter(|segment| segment.limit() > end).map(|segment| {
            let bytes = segment.bytes_from(end.max(segment.base()));
            let is_zero = |chunk: &&[u8]| ZEROS.get(..chunk.len()) == Some(*chunk);
            let zeros: usize = bytes.rchunks(ZEROS.len()).take_while(is_zero).map(<[u8]>::len).sum();
            let rest = bytes.get(..bytes.len() - zeros).unwrap_or_default();
            rest.iter().rposition(|byte| *byte != 0).map_or(0, |last| last as u64 + 1)
        });
        behind.sum()
    }

    /// Makes everything in `range` durable by rewriting it.
    ///
    /// After a failed flush the page cache may hold bytes as clean that are not on disk. Recovery can read them, but
    /// a sync alone would leave a hole that the next power loss exposes.
    pub(crate) fn rewrite(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.all().iter().try_for_each(|segment| {
            segment.rewrite(range.clone()).map_err(StoreError::io(segment.path(), "write again"))
        })
    }

    /// Creates the file after the last one: preallocated, durable, empty, and in the list. Frees the space if that
    /// fails.
    pub(crate) fn create(&self) -> Result<Active, StoreError> {
        self.create_at(self.all().last().map_or(0, |last| last.limit()))
    }

    fn create_at(&self, base: u64) -> Result<Active, StoreError> {
        let list = self.all();
        let path = self.dir.join(name_of(base));
        let file = self.make_file(&path).inspect_err(|_| {
            // The file system may keep a partial allocation of the last free space. The next attempt removes the
            // file again in any case.
            let _ = self.disk.remove(&self.scratch);
        })?;
        self.disk.sync_entries(&self.dir)?;
        let (segment, appender) = self.map(file, base, path, 0)?;
        let segment = Arc::new(segment);
        let mut longer = Vec::with_capacity(list.len() + 1);
        longer.extend(list.iter().cloned());
        longer.push(Arc::clone(&segment));
        self.list.store(Arc::new(longer));
        Ok((segment, appender))
    }

    fn make_file(&self, path: &Path) -> Result<Arc<dyn DiskFile>, StoreError> {
        let scratch = &self.scratch;
        self.disk.remove_file(scratch)?;
        let file = self.disk.open(scratch, Open::Create).map_err(StoreError::io(scratch, "create"))?;
        file.allocate(self.size).map_err(StoreError::io(scratch, "allocate"))?;
        file.sync().map_err(StoreError::io(scratch, "sync"))?;
        self.disk.rename(scratch, path).map_err(StoreError::io(path, "rename into place"))?;
        Ok(file)
    }

    /// Ends the log at `end`: removes later files, durably zeroes the rest of the file at `end`, and returns the
    /// permission to append there. Returns `None` if a file would begin at `end`.
    ///
    /// The zeros matter: stale records there would look genuine, at their right positions, after another crash. No
    /// slice may be held beyond `end`; recovery, the only caller, holds none.
    pub(crate) fn cut(&self, end: u64) -> Result<Option<Active>, StoreError> {
        // A file that begins at `end` is kept as the next one, because a full disk might have no space for another.
        let (kept, removed): (Vec<_>, Vec<_>) =
            self.all().iter().cloned().partition(|segment| segment.base() <= end);
        self.list.store(Arc::new(kept.clone()));
        // From the end, so that a crash in between leaves no gap.
        for segment in removed.iter().rev() {
            self.disk.remove_durably(segment.path())?;
        }
        let Some(last) = kept.last().filter(|last| last.limit() > end) else { return Ok(None) };
        let path = last.path().to_owned();
        let used = end - last.base();
        if used == 0 {
            last.file().allocate(self.size).map_err(StoreError::io(&path, "allocate"))?;
        }
        last.zero_from(used).map_err(StoreError::io(&path, "zero the end"))?;
        let (segment, appender) = self.map(Arc::clone(last.file()), last.base(), path, used)?;
        let segment = Arc::new(segment);
        let mut list = kept;
        list.pop();
        list.push(Arc::clone(&segment));
        self.list.store(Arc::new(list));
        Ok(Some((segment, appender)))
    }

    /// Continues the log at `end` without changing its bytes. The caller ensures that only zeros follow.
    pub(crate) fn resume(&self, end: u64) -> Result<Option<Active>, StoreError> {
        let mut list = Vec::clone(&self.all());
        let Some(last) = list.pop().filter(|last| (last.base()..last.limit()).contains(&end)) else {
            return Ok(None);
        };
        let used = end - last.base();
        // A copied file may be sparse, and a write through the mapping must not be the first to run out of space.
        last.file().allocate(self.size).map_err(StoreError::io(last.path(), "allocate"))?;
        let (segment, appender) =
            self.map(Arc::clone(last.file()), last.base(), last.path().to_owned(), used)?;
        let segment = Arc::new(segment);
        list.push(Arc::clone(&segment));
        self.list.store(Arc::new(list));
        Ok(Some((segment, appender)))
    }

    /// Makes the empty log begin at `base`: removes its files and creates one there. A crash in between leaves an
    /// empty log.
    pub(crate) fn begin_at(&self, base: u64) -> Result<Active, StoreError> {
        for segment in self.all().iter().rev() {
            self.disk.remove_durably(segment.path())?;
        }
        self.list.store(Arc::default());
        self.create_at(base)
    }

    /// Durably removes the first file, and then drops it from the list. Only the last file may be written meanwhile.
    ///
    /// Readers keep their mapping. After an error the file is still in the list but may be gone from the disk: its
    /// mapping is readable, and removing it again succeeds.
    pub(crate) fn remove_first(&self, first: &Segment) -> Result<(), StoreError> {
        self.disk.remove_durably(first.path())?;
        let rest = self.all().iter().filter(|segment| segment.base() != first.base()).cloned().collect();
        self.list.store(Arc::new(rest));
        Ok(())
    }

    /// Removes a last file that begins after `end`: a next file at an orderly stop.
    pub(crate) fn remove_unused(&self, end: u64) -> Result<(), StoreError> {
        let mut list = Vec::clone(&self.all());
        if let Some(last) = list.pop_if(|last| last.base() > end) {
            self.list.store(Arc::new(list));
            self.disk.remove_durably(last.path())?;
        }
        Ok(())
    }
}

/// Returns the size that most files have, the larger one in doubt, and a file of that size.
fn most_frequent_size(files: &[(u64, PathBuf, u64)]) -> Option<(&Path, u64)> {
    let count = |size: u64| files.iter().filter(|(_, _, other)| *other == size).count();
    let most = files.iter().max_by_key(|(_, _, size)| (count(*size), *size));
    most.map(|(_, path, size)| (path.as_path(), *size))
}

fn segment_size(path: &Path, found: u64) -> Result<u64, StoreError> {
    if (SEGMENT_BYTES_MIN..=1 << 31).contains(&found) {
        return Ok(found);
    }
    let expected = format!(
        "expected a segment of the log, of {SEGMENT_BYTES_MIN} bytes to 2 GiB, and found {found} bytes"
    );
    Err(StoreError::Layout { path: path.to_owned(), expected })
}
