//! Recovery: timer log and wheel as the last save left them.
//!
//! The wheel's file has a slot as that save wrote it, or as a later one did that did not come to its end. Such a slot ends
//! behind the end of the log that was saved, where the units are on the disk before the slot is: followed back along its
//! chain it is the one that was saved. The digest says whether all of them are.
//!
//! Threads: the opening one.

use std::path::Path;
use std::sync::Arc;

use crate::store::disk::Disk;
use crate::store::error::StoreError;
use crate::store::options::TimerOptions;

use super::progress::{LogMark, ProgressFile, TimerProgress};
use super::timer_log::TimerLog;
use super::unit::{SEAL, UNIT_BYTES, count};
use super::wheel::{Slot, Wheel};
use super::wheel_file::WheelFile;

const LOG_DIR: &str = "timerlog";
const WHEEL_FILE: &str = "timerwheel";

/// What the files say.
pub(crate) struct TimerFiles {
    pub(crate) log: TimerLog,
    pub(crate) wheel: Wheel,
    pub(crate) wheel_file: WheelFile,
    /// Messages that wait.
    pub(crate) pending: i64,
    /// The broker was stopped in order.
    pub(crate) is_sealed: bool,
    /// The log has none of the messages that wait: they are to be read from the queue again.
    pub(crate) is_new: bool,
}

impl TimerFiles {
    /// The files that `progress` is of; `None` where they are not what it says.
    pub(crate) fn recover(
        disk: &Arc<dyn Disk>,
        root: &Path,
        options: &TimerOptions,
        progress: &TimerProgress,
    ) -> Result<Option<Self>, StoreError> {
        let Some(mark) = progress.log.filter(|mark| mark.precision_ms == options.precision_ms) else {
            return Ok(None);
        };
        let dir = root.join(LOG_DIR);
        let Some(mut log) = TimerLog::load(disk, dir, options.log_file_bytes, mark.end)? else {
            return Ok(None);
        };
        let mut wheel_file = WheelFile::new(disk, root.join(WHEEL_FILE), options.wheel_slots, false);
        let wheel = match from_file(&wheel_file, &mut log, progress, mark)? {
            Some((wheel, stale)) => {
                wheel_file.write(&stale)?;
                wheel
            }
            None => {
                wheel_file = WheelFile::new(disk, root.join(WHEEL_FILE), options.wheel_slots, true);
                let Some(wheel) = from_log(&mut log, progress, mark)? else { return Ok(None) };
                wheel
            }
        };
        let Some(pending) = pending(&wheel, &mut log, progress.delivered_ms)? else { return Ok(None) };
        log.cut()?;
        let last = mark.end.checked_sub(UNIT_BYTES as u64).map(|last| log.read(last)).transpose()?.flatten();
        let is_sealed = last.is_some_and(|unit| unit.kind & SEAL != 0);
        Ok(Some(Self { is_sealed, log, wheel, wheel_file, pending, is_new: false }))
    }

    /// Files without units, whatever there was before.
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        root: &Path,
        options: &TimerOptions,
        (progress_file, progress): (&mut ProgressFile, &TimerProgress),
        now_ms: i64,
    ) -> Result<Self, StoreError> {
        if progress.log.is_some() {
            // Before the log goes, so that no crash leaves the mark of one beside another.
            progress_file.save(&TimerProgress { log: None, ..*progress }, now_ms)?;
        }
        Ok(Self {
            log: TimerLog::create(disk, root.join(LOG_DIR), options.log_file_bytes)?,
            wheel: Wheel::new(options.precision_ms),
            wheel_file: WheelFile::new(disk, root.join(WHEEL_FILE), options.wheel_slots, true),
            pending: 0,
            is_sealed: false,
            is_new: true,
        })
    }
}

/// A wheel that was saved, and slots that its file has otherwise.
type SavedWheel = (Wheel, Vec<(i64, Slot)>);

/// The wheel that was saved; `None` where the file does not say.
fn from_file(
    file: &WheelFile,
    log: &mut TimerLog,
    progress: &TimerProgress,
    mark: LogMark,
) -> Result<Option<SavedWheel>, StoreError> {
    let (mut wheel, mut stale) = (Wheel::new(mark.precision_ms), Vec::new());
    let Some(slots) = file.read(wheel.first_after(progress.delivered_ms))? else { return Ok(None) };
    for (number, found) in slots {
        let Some(slot) = as_saved(log, &wheel, mark.end, (number, found))? else { return Ok(None) };
        if slot != found {
            stale.push((number, slot));
        }
        if slot != Slot::EMPTY {
            wheel.put(number, slot);
        }
    }
    Ok((wheel.digest() == mark.digest).then_some((wheel, stale)))
}

/// A slot without its units behind `end`; `None` where its chain does not lead there.
fn as_saved(
    log: &mut TimerLog,
    wheel: &Wheel,
    end: u64,
    (number, mut slot): (i64, Slot),
) -> Result<Option<Slot>, StoreError> {
    if slot.first >= end {
        return Ok(Some(Slot::EMPTY));
    }
    while slot.last >= end {
        let unit = log.read_behind(slot.last)?.filter(|unit| wheel.slot_of(unit.due_ms) == number);
        let Some(unit) = unit else { return Ok(None) };
        let Some(previous) = unit.previous.filter(|previous| *previous < slot.last) else { return Ok(None) };
        slot.last = previous;
        slot.count = slot.count.saturating_sub(count(unit.kind));
    }
    Ok(Some(slot))
}

/// The wheel that was saved, put together from the whole log; `None` where the log is not the one.
fn from_log(
    log: &mut TimerLog,
    progress: &TimerProgress,
    mark: LogMark,
) -> Result<Option<Wheel>, StoreError> {
    let mut wheel = Wheel::new(mark.precision_ms);
    let is_whole = log.scan(|position, unit| {
        wheel.add(wheel.slot_of(unit.due_ms), position, unit.previous, count(unit.kind));
    })?;
    wheel.forget_until(progress.delivered_ms);
    Ok((is_whole && wheel.digest() == mark.digest).then_some(wheel))
}

/// Messages that wait: all of the wheel but what was delivered of its first slot. `None` where that cannot be read.
fn pending(wheel: &Wheel, log: &mut TimerLog, delivered_ms: i64) -> Result<Option<i64>, StoreError> {
    let (mut pending, first) = (wheel.count(), wheel.first_after(delivered_ms));
    if wheel.begin_ms(first) < delivered_ms
        && let Some(last) = wheel.last(first)
    {
        let is_whole = log.chain(last, |_, unit| {
            if wheel.over_ms(unit.due_ms, unit.kind) <= delivered_ms {
                pending -= i64::from(count(unit.kind));
            }
        })?;
        return Ok(is_whole.then_some(pending));
    }
    Ok(Some(pending))
}
