//! Timer recovery: restores timer log and wheel as of the last save.
//!
//! A slot in the wheel's file is from the last save, or from a later, interrupted save. In the second case it ends
//! after the saved end of the log. Its units were written first, so following its chain backwards yields the saved
//! slot. The digest verifies all slots.
//!
//! Threads: the opener of the store.

use std::path::Path;
use std::sync::Arc;

use crate::store::StoreError;
use crate::store::TimerOptions;
use crate::store::disk::Disk;

use super::progress::{LogMark, ProgressFile, TimerProgress};
use super::timer_log::TimerLog;
use super::unit::{SEAL, UNIT_BYTES, count};
use super::wheel::{Slot, Wheel};
use super::wheel_file::WheelFile;

const LOG_DIR: &str = "timerlog";
const WHEEL_FILE: &str = "timerwheel";

/// The recovered files.
pub(crate) struct TimerFiles {
    pub(crate) log: TimerLog,
    pub(crate) wheel: Wheel,
    pub(crate) wheel_file: WheelFile,
    pub(crate) pending: i64,
    /// Whether the broker was stopped in order.
    pub(crate) is_sealed: bool,
    /// Whether the log is empty and must be rebuilt from the queue.
    pub(crate) is_new: bool,
}

impl TimerFiles {
    /// Loads the files of `progress`; returns `None` if they do not match it.
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

    /// Creates files without units, replacing existing ones.
    pub(crate) fn create(
        disk: &Arc<dyn Disk>,
        root: &Path,
        options: &TimerOptions,
        (progress_file, progress): (&mut ProgressFile, &TimerProgress),
        now_ms: i64,
    ) -> Result<Self, StoreError> {
        if progress.log.is_some() {
            // Before the log is removed, so that no crash leaves the mark of another log.
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

/// A saved wheel, and the slots that differ in its file.
type SavedWheel = (Wheel, Vec<(i64, Slot)>);

/// Restores the saved wheel; returns `None` if the file does not suffice.
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

/// Returns a slot without its units after `end`; `None` if its chain does not lead there.
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

/// Rebuilds the saved wheel from the whole log; returns `None` if the log does not match.
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

/// Counts pending messages: those of the wheel, less the delivered ones of its first slot. `None` if that slot is
/// unreadable.
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
