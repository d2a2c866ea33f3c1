//! Queue load: the units in the files of queues after an orderly stop or a crash.
//!
//! After an orderly stop a queue ends at its last unit. After a crash only units of records before the position that
//! the checkpoint covers are kept; the rest is zeroed and replayed from the log. Files of the wrong shape, gaps
//! between them, or a last unit that does not point at its record make a queue *damaged*: it is rebuilt.
//!
//! Threads: recovery, which distributes many queues over as many threads as there are cores.

use std::collections::HashMap;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::Arc;

use crate::message::multi_dispatch;
use crate::message::record::RecordView;
use crate::message::topic::is_light;
use crate::positions::{QueueKey, QueueOffset};
use crate::store::derived::{ConsumeQueue, QueueFiles, Queues, UNIT_BYTES, Unit};
use crate::store::disk::{Disk, DiskFile, Open, name_of, position_of};
use crate::store::error::StoreError;
use crate::store::log::{Segments, record_at};
use crate::store::settings::options::Options;

/// Units per read.
const CHUNK_UNITS: usize = 1 << 12;
/// Units of the first read of a file whose length is unknown.
const FIRST_UNITS: usize = 1 << 8;
/// Queues per additional thread.
const QUEUES_PER_THREAD: usize = 512;

/// The files of one queue in its folder: beginning and size in bytes.
struct Folder {
    key: QueueKey,
    files: Vec<(u64, u64)>,
}

/// The folders of all queues, listed once: with tens of thousands of them this is the longest part of a start.
pub(crate) struct Folders(Vec<Folder>);

impl Folders {
    /// Lists the folders below `root`, without the topics in `deleted`.
    fn list(disk: &dyn Disk, root: &Path, deleted: &[String]) -> Result<Self, StoreError> {
        let mut folders = Vec::new();
        for topic in disk.entries(root)?.iter().filter(|entry| entry.is_dir && !deleted.contains(&entry.name))
        {
            let dir = root.join(&topic.name);
            let topic: Arc<str> = Arc::from(topic.name.as_str());
            for entry in disk.entries(&dir)?.iter().filter(|entry| entry.is_dir) {
                let Ok(queue_id) = entry.name.parse() else { continue };
                let files = disk.entries(&dir.join(&entry.name))?;
                let files = files.iter().filter(|file| !file.is_dir);
                let files = files.filter_map(|file| Some((position_of(&file.name)?, file.size))).collect();
                folders.push(Folder { key: QueueKey { topic: Arc::clone(&topic), queue_id }, files });
            }
        }
        Ok(Self(folders))
    }

    /// Returns the most frequent size of the files, or `wanted` if there are none.
    fn file_bytes(&self, wanted: u64) -> u64 {
        let mut sizes: HashMap<u64, usize> = HashMap::new();
        for (_, size) in self.0.iter().flat_map(|folder| &folder.files) {
            let is_whole = *size > 0 && size.is_multiple_of(UNIT_BYTES as u64);
            if is_whole && *size <= 1 << 30 {
                *sizes.entry(*size).or_default() += 1;
            }
        }
        sizes.into_iter().max_by_key(|(size, count)| (*count, *size)).map_or(wanted, |(size, _)| size)
    }
}

#[derive(Default)]
pub(crate) struct Loaded {
    /// Damaged queues, and the last offset of each as far as its files show.
    pub(crate) damaged: HashMap<QueueKey, u64>,
    /// Queues whose first message may be gone from the log.
    pub(crate) in_doubt: Vec<Arc<ConsumeQueue>>,
}

/// Adds every queue that has files to the table, damaged ones as empty.
///
/// The log is read again from `cut` on; `None` after an orderly stop.
pub(crate) fn load(
    queues: &Queues,
    disk: &dyn Disk,
    log: &Segments,
    folders: Folders,
    cut: Option<u64>,
) -> Result<Loaded, StoreError> {
    let mut loaded = Loaded::default();
    let reading = Reading { files: queues.files(), disk, log, cut };
    for (key, measured) in reading.measure_all(&folders.0)? {
        match measured {
            Measured::Sound { first, max, begins_at } => {
                let queue = queues.insert(&key.topic, key.queue_id, first, max)?;
                if first < max && begins_at.is_none_or(|begin| begin < log.begin()) {
                    loaded.in_doubt.push(queue);
                }
            }
            Measured::Damaged { max } => {
                queues.insert(&key.topic, key.queue_id, 0, 0)?;
                loaded.damaged.insert(key, max);
            }
        }
    }
    Ok(loaded)
}

/// The content of the files of a queue.
enum Measured {
    /// Units from `first` up to `max`. The message of the first one is at `begins_at`, if that was read.
    Sound { first: u64, max: u64, begins_at: Option<u64> },
    /// Damaged. The offset after the last unit is `max`, as far as the files show.
    Damaged { max: u64 },
}

impl Measured {
    const EMPTY: Self = Self::Sound { first: 0, max: 0, begins_at: None };
}

/// The inputs of the measurement.
#[derive(Clone, Copy)]
struct Reading<'a> {
    files: &'a QueueFiles,
    disk: &'a dyn Disk,
    log: &'a Segments,
    cut: Option<u64>,
}

impl Reading<'_> {
    /// Measures all queues; distributes many over the machine's cores, since most of the time is spent in the kernel.
    fn measure_all(self, folders: &[Folder]) -> Result<Vec<(QueueKey, Measured)>, StoreError> {
        let measure = move |folders: &[Folder]| -> Result<Vec<_>, StoreError> {
            let mut chunk = vec![[0; UNIT_BYTES]; CHUNK_UNITS];
            folders.iter().map(|folder| Ok((folder.key.clone(), self.measure(folder, &mut chunk)?))).collect()
        };
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = cores.min(folders.len() / QUEUES_PER_THREAD);
        if threads <= 1 {
            return measure(folders);
        }
        let mut measured = Vec::with_capacity(folders.len());
        std::thread::scope(|scope| {
            let parts = folders.chunks(folders.len().div_ceil(threads));
            let threads: Vec<_> = parts.map(|part| scope.spawn(move || measure(part))).collect();
            for thread in threads {
                measured.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
            }
            Ok(measured)
        })
    }

    fn measure(self, folder: &Folder, chunk: &mut Chunk) -> Result<Measured, StoreError> {
        let Folder { key, files: found } = folder;
        let dir = self.files.dir(&key.topic, key.queue_id);
        let mut found = found.as_slice();
        // Created but not extended before the crash.
        if let [before @ .., (base, 0)] = found {
            let path = dir.join(name_of(*base));
            self.disk.remove_file(&path)?;
            found = before;
        }
        let file_bytes = self.files.file_bytes();
        let Some((first, _)) = found.first().copied() else { return Ok(Measured::EMPTY) };
        let is_sound = found.iter().zip(0..).all(|((base, size), index)| {
            *size == file_bytes && base.is_multiple_of(file_bytes) && *base == first + index * file_bytes
        });
        if !is_sound {
            return Ok(Measured::Damaged { max: 0 });
        }
        let offset_of = |base: u64| base / UNIT_BYTES as u64;
        while let [before @ .., (base, _)] = found {
            let path = dir.join(name_of(*base));
            let file = self.disk.open(&path, Open::Write).map_err(StoreError::io(&path, "open"))?;
            let units = units_before(&*file, self.files.file_units(), self.cut, chunk)
                .map_err(StoreError::io(&path, "read"))?;
            if self.cut.is_some() {
                let rest = units.count * UNIT_BYTES as u64..file_bytes;
                let clear = || if file.clear(rest)? { file.sync() } else { Ok(()) };
                clear().map_err(StoreError::io(&path, "clear the rest"))?;
            }
            let max = offset_of(*base) + units.count;
            let leads_nowhere = |last: &Unit| *last == Unit::FILLER || last.is_lost();
            match units.last {
                Some(last)
                    if !leads_nowhere(&last) && !points_at_its_record(self.log, key, max - 1, &last) =>
                {
                    return Ok(Measured::Damaged { max });
                }
                // An empty file of a queue that was created and not yet written, or whose end was cut.
                last if last.is_some() || before.is_empty() => {
                    let begins_at = units.first.filter(|_| before.is_empty()).map(|first| first.physical);
                    return Ok(Measured::Sound { first: offset_of(first), max, begins_at });
                }
                _ => self.disk.remove_file(&path)?,
            }
            found = before;
        }
        Ok(Measured::EMPTY)
    }
}

/// Memory for units that are read.
type Chunk = Vec<[u8; UNIT_BYTES]>;

struct Units {
    count: u64,
    first: Option<Unit>,
    last: Option<Unit>,
}

/// Returns the plausible units at the front of a file that point before `cut`, in log order.
fn units_before(
    file: &dyn DiskFile,
    file_units: u64,
    cut: Option<u64>,
    chunk: &mut Chunk,
) -> std::io::Result<Units> {
    let limit = cut.unwrap_or(u64::MAX);
    let mut units = Units { count: 0, first: None, last: None };
    // If the store has many queues, most are short.
    let mut wanted = FIRST_UNITS;
    while units.count < file_units {
        let Some(into) = chunk.get_mut(..wanted) else { break };
        let read = file.read_at(into.as_flattened_mut(), units.count * UNIT_BYTES as u64)? / UNIT_BYTES;
        wanted = CHUNK_UNITS;
        for bytes in chunk.iter().take(read) {
            let unit = Unit::decode(bytes);
            let follows = match units.last {
                Some(Unit::FILLER) | None => true,
                Some(last) => unit.physical >= last.end() || (unit.is_lost() && unit.end() >= last.end()),
            };
            if !(unit.is_plausible() && follows && (unit.physical < limit || unit == Unit::FILLER)) {
                return Ok(units);
            }
            units.count += 1;
            units.first = units.first.or(Some(unit));
            units.last = Some(unit);
        }
        if read == 0 {
            break;
        }
    }
    units.count = units.count.min(file_units);
    Ok(units)
}

/// Returns whether the record of a unit belongs to that place of that queue. Records before the log's beginning
/// cannot be checked.
fn points_at_its_record(log: &Segments, key: &QueueKey, offset: u64, unit: &Unit) -> bool {
    if unit.physical < log.begin() {
        return true;
    }
    let is_own = |record: &RecordView<'_>| {
        record.topic() == key.topic.as_bytes()
            && record.queue_id() == key.queue_id
            && record.queue_offset().0 == offset
    };
    let is_light = |record: &RecordView<'_>| {
        let place = || multi_dispatch::place(record.topic(), record.properties(), &key.topic);
        is_light(&key.topic) && place() == Some(QueueOffset(offset))
    };
    let matches = record_at(log, unit.physical, |record| {
        record.total_size() == unit.size as usize && (is_own(record) || is_light(record))
    });
    matches == Some(true)
}

/// Opens the queues of a store, and lists their folders without the topics in `deleted`.
pub(crate) fn open(
    disk: &Arc<dyn Disk>,
    options: &Options,
    deleted: &[String],
) -> Result<(Queues, Folders), StoreError> {
    let root = options.paths.queues.clone();
    let folders = Folders::list(&**disk, &root, deleted)?;
    let files = QueueFiles::new(
        Arc::clone(disk),
        root,
        folders.file_bytes(options.queue_file_bytes.next_multiple_of(UNIT_BYTES as u64)),
    );
    Ok((Queues::new(files, &options.delay_levels_ms), folders))
}
