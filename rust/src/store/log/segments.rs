//! Segments: fixed-size files as one address space.
//!
//! Owns the list of CommitLog files. A file is named by the position of its first byte, has its full size from the
//! moment it can be seen, and the files are neighbours without gaps. The next file is made before it is needed, so
//! that a full disk is met here and never by a message half written.
//!
//! Invariants: all files have one size, which the folder remembers; only the last file that has any bytes is written.
//! Threads: reading from any; `create` and `cut` from one at a time (recovery, then maintenance).

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arc_swap::ArcSwap;
use bytes::Bytes;

use crate::store::disk::{Appender, Disk, DiskFile, Open, Space, name_of, position_of};
use crate::store::error::StoreError;

use super::segment::Segment;
use super::spool::{Part, Spool};
use super::write_path::{Unwritten, WritePathKind};

/// Smallest file that is believed to be a CommitLog file at all.
const SEGMENT_BYTES_MIN: u64 = 4096;

/// The file that is written next, and the right to write to its mapping where that is the write path.
pub(crate) type Active = (Arc<Segment>, Option<Appender>);

pub(crate) struct Segments {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    scratch: PathBuf,
    size: u64,
    write_path: WritePathKind,
    /// Where the end of the log is read from, if that is the write path.
    spool: Option<Arc<Spool>>,
    list: ArcSwap<Vec<Arc<Segment>>>,
}

impl Segments {
    /// Loads the files of `dir`, every one as readable to its end; recovery cuts afterwards.
    ///
    /// The size of the files that are there wins over `size_wanted`. A file under construction is called `scratch`,
    /// outside of `dir`, where an Apache broker would take it for a segment.
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
        // A crash of the original between creating and extending its newest file leaves it empty.
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
            spool: None,
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
            // Cut short, or the last one padded by a copy; what it held is still checked record by record, and what it
            // does not hold any more is damage.
            file.resize(self.size).map_err(StoreError::io(&path, "restore the size"))?;
            file.sync().map_err(StoreError::io(&path, "sync"))?;
        }
        let (segment, _) = self.map(file, base, path, self.size)?;
        Ok(segment)
    }

    /// Maps a file whose first `published` bytes are records; for writing if it is not full and the write path says so.
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

    pub(crate) fn set_spool(&mut self, spool: Spool) {
        self.spool = Some(Arc::new(spool));
    }

    pub(crate) fn spool(&self) -> Option<&Arc<Spool>> {
        self.spool.as_ref()
    }

    /// The part of the spool that holds position `at`.
    pub(crate) fn spooled(&self, at: u64) -> Option<Arc<Part>> {
        self.spool.as_ref()?.find(at)
    }

    pub(crate) fn all(&self) -> Arc<Vec<Arc<Segment>>> {
        self.list.load_full()
    }

    /// Position of the first byte of the log; 0 when there are no files.
    pub(crate) fn begin(&self) -> u64 {
        self.list.load().first().map_or(0, |segment| segment.base())
    }

    /// The file that holds position `at`.
    pub(crate) fn find(&self, at: u64) -> Option<Arc<Segment>> {
        let list = self.list.load();
        let index = at.checked_sub(list.first()?.base())? / self.size;
        list.get(usize::try_from(index).ok()?).cloned()
    }

    /// `size` readable bytes at `at`; `None` unless all of them are in one file and published.
    pub(crate) fn slice(&self, at: u64, size: usize) -> Option<Bytes> {
        if let Some(part) = self.spooled(at) {
            return part.bytes_from(at).get(..size).map(Bytes::copy_from_slice);
        }
        let segment = self.find(at)?;
        let view = segment.view(at.checked_add(size as u64)?);
        let start = (at - segment.base()) as usize;
        (start + size <= view.len()).then(|| view.slice(start..start + size))
    }

    /// Writes what a write buffer held to its file.
    pub(crate) fn write(&self, unwritten: &Unwritten) -> Result<(), StoreError> {
        if unwritten.bytes.is_empty() {
            return Ok(());
        }
        let Some(segment) = self.find(unwritten.at) else {
            let expected = format!("expected a file for position {}", unwritten.at);
            return Err(StoreError::Layout { path: self.dir.clone(), expected });
        };
        segment.write(unwritten).map_err(StoreError::io(segment.path(), "write"))
    }

    /// Writes what the spool holds to its files; `note` is told each whole block, with its position.
    pub(crate) fn write_spooled(&self, note: impl FnMut(u64, &[u8])) -> Result<(), StoreError> {
        self.spool.as_ref().map_or(Ok(()), |spool| spool.write(|base| self.find(base), note))
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

    /// Bytes behind `end`, in its own file and in later ones, up to the last that is not zero.
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

    /// Makes everything in `range` durable by writing it once more.
    ///
    /// After a flush that failed the page cache may hold bytes that it believes to be on disk and that are not. They can
    /// be read, so recovery finds them; a sync alone would leave a hole for the next power loss to find.
    pub(crate) fn rewrite(&self, range: Range<u64>) -> Result<(), StoreError> {
        self.all().iter().try_for_each(|segment| {
            segment.rewrite(range.clone()).map_err(StoreError::io(segment.path(), "write again"))
        })
    }

    /// Makes the file after the last one: allocated whole, durable, empty, and already in the list. What was allocated is
    /// given back where that fails.
    pub(crate) fn create(&self) -> Result<Active, StoreError> {
        self.create_at(self.all().last().map_or(0, |last| last.limit()))
    }

    fn create_at(&self, base: u64) -> Result<Active, StoreError> {
        let list = self.all();
        let path = self.dir.join(name_of(base));
        let file = self.make_file(&path).inspect_err(|_| {
            // A file system may keep what it could get of an allocation that failed: the rest of the disk. Nothing of it
            // is tried to be kept, and the next attempt begins with another removal.
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

    /// Ends the log at `end`: removes the files after it, zeroes what follows it in its own file, durably, and returns
    /// the right to append there. `None` when the log ends where a file would begin.
    ///
    /// The zeros matter: stale records there would look genuine, in their right places, after another crash.
    /// No slice may be held beyond `end`; recovery, the only caller, holds none.
    pub(crate) fn cut(&self, end: u64) -> Result<Option<Active>, StoreError> {
        // A file that begins there is the next one, for which a full disk may have no room once more.
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

    /// Continues the log at `end` without changing what it holds: the caller knows that only zeros follow.
    pub(crate) fn resume(&self, end: u64) -> Result<Option<Active>, StoreError> {
        let mut list = Vec::clone(&self.all());
        let Some(last) = list.pop().filter(|last| (last.base()..last.limit()).contains(&end)) else {
            return Ok(None);
        };
        let used = end - last.base();
        // It may have been copied without its space, which a write through a mapping must not be the first to miss.
        last.file().allocate(self.size).map_err(StoreError::io(last.path(), "allocate"))?;
        let (segment, appender) =
            self.map(Arc::clone(last.file()), last.base(), last.path().to_owned(), used)?;
        let segment = Arc::new(segment);
        list.push(Arc::clone(&segment));
        self.list.store(Arc::new(list));
        Ok(Some((segment, appender)))
    }

    /// Makes the log, in which nothing was written, begin at `base`: its files go, and one that begins there is made. A crash in
    /// between leaves an empty log.
    pub(crate) fn begin_at(&self, base: u64) -> Result<Active, StoreError> {
        for segment in self.all().iter().rev() {
            self.disk.remove_durably(segment.path())?;
        }
        self.list.store(Arc::default());
        self.create_at(base)
    }

    /// Removes the first file, durably, and then takes it out of the list. Nothing but the last file may be written.
    ///
    /// A reader of it keeps its mapping. After an error the file is in the list, and may be gone from the disk
    /// already: what is mapped can be read, and removing it again succeeds.
    pub(crate) fn remove_first(&self, first: &Segment) -> Result<(), StoreError> {
        self.disk.remove_durably(first.path())?;
        let rest = self.all().iter().filter(|segment| segment.base() != first.base()).cloned().collect();
        self.list.store(Arc::new(rest));
        Ok(())
    }

    /// Removes a last file that begins after `end`, as an orderly stop does with the one made early.
    pub(crate) fn remove_unused(&self, end: u64) -> Result<(), StoreError> {
        let mut list = Vec::clone(&self.all());
        if let Some(last) = list.pop_if(|last| last.base() > end) {
            self.list.store(Arc::new(list));
            self.disk.remove_durably(last.path())?;
        }
        Ok(())
    }
}

/// The size that most files have, the larger one in doubt, and one of those.
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
