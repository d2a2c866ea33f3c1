//! Verification: comparison of the whole store with its log.
//!
//! One walk along the log feeds all checks: corrupt ranges, the queue and index entries of each record, and the
//! record that the checkpoint names. The other findings are reported at the end.
//!
//! *Invariant*: memory is bounded by the number of queues; nothing is written.
//! Threads: the caller's.

use hashbrown::HashSet;

use crate::store::error::StoreError;
use crate::store::recovery::{CHECKPOINT_BYTES, Checkpoint, DeletedTopics, MANIFEST_BYTES, Manifest};

use super::findings::{FindingKind, Findings, Report};
use super::index::IndexCheck;
use super::queues::QueueCheck;
use super::walk::{CorruptRange, Extent, Found, log_files};
use super::{Shape, StoppedStore};

impl StoppedStore {
    /// Compares everything with the log.
    ///
    /// `topics` are the existing topics: records of others are left over from deleted ones. With `None` all topics
    /// exist.
    pub fn verify(&self, topics: Option<&HashSet<String>>, shape: Shape) -> Result<Report, StoreError> {
        let checkpoint =
            Checkpoint::decode(&self.disk.read_front(&self.paths.root.join("checkpoint"), CHECKPOINT_BYTES)?);
        let is_aborted = self.list("")?.iter().any(|entry| entry.name == "abort");
        let named = checkpoint.record.max(0) as u64;
        let files = log_files(&*self.disk, &self.paths.log)?;
        let begin = files.first().map_or(0, |file| file.base);
        let unsettled = is_aborted.then_some(named);
        let mut findings = Findings { list: Vec::new(), damage: 0, notes: 0, log_begin: begin, unsettled };
        self.check_layout(&mut findings)?;
        let undrained = self.undrained_bytes()?;
        if undrained > 0 {
            let text = format!(
                "{undrained} bytes of records that a killed process left may not be in the log yet; the next start, or \
                 `rmqpy store drain`, moves them into it; another broker does not see them"
            );
            findings.note(FindingKind::Ring, &self.paths.write_ring(), text);
        }
        let aside = self.paths.ring_aside();
        if !self.disk.entries(&aside)?.is_empty() {
            let text = "this folder keeps messages of an earlier write ring that did not continue the log"
                .to_owned();
            findings.note(FindingKind::Ring, &aside, text);
        }

        let deleted = DeletedTopics::load(&self.disk, &self.paths.root, begin)?;
        let mut queues = QueueCheck::new(&*self.disk, self.paths.queues.clone());
        let mut index = IndexCheck::new(&*self.disk, &self.paths.index, shape, &mut findings)?;
        let (mut records, mut is_named_there) = (0, false);
        let mut last: (u64, Vec<u8>) = (0, Vec::new());
        let extent = self.walk(|found| {
            let record = match found {
                Found::Record(record) => record,
                Found::Corrupt(range) => {
                    add_corrupt_range(&range, &mut findings);
                    return Ok(());
                }
            };
            let at = record.physical_offset().0;
            records += 1;
            is_named_there |= at == named;
            last.0 = at;
            last.1.clear();
            last.1.extend_from_slice(record.bytes());
            index.take(record, &mut findings)?;
            queues.take(record, |topic| deleted.covers(topic, at), &mut findings)
        })?;
        if let Some(range) = &extent.tail {
            let text = format!(
                "{} bytes after the end of the log are not zero: {}",
                range.end - range.at,
                range.reason
            );
            findings.add(FindingKind::Tail, &range.path, range.at, text);
        }
        let queues = queues.finish(extent.begin..extent.end, topics, &mut findings)?;
        let keys = index.finish(&mut findings)?;
        if named != 0 && named >= begin && !is_named_there {
            let text = format!("names a record at {named}, where no record begins");
            findings.add(FindingKind::Checkpoint, &self.paths.root.join("checkpoint"), u64::MAX, text);
        }
        if !is_aborted {
            let last = (records > 0).then(|| (last.0, crc32fast::hash(&last.1)));
            self.check_manifest(&checkpoint, &extent, last, &mut findings)?;
        }
        let Findings { list, damage, notes, .. } = findings;
        Ok(Report { extent, records, queues, keys, is_aborted, findings: list, damage, notes })
    }

    /// Checks that the files of the log are adjacent and of one size.
    fn check_layout(&self, findings: &mut Findings) -> Result<(), StoreError> {
        let files = log_files(&*self.disk, &self.paths.log)?;
        let size = files.first().map_or(0, |file| file.size);
        for (index, file) in files.iter().enumerate() {
            let before = index.checked_sub(1).and_then(|before| files.get(before));
            if let Some(before) = before.filter(|before| before.base + size != file.base) {
                let text = format!(
                    "does not follow {}, which ends at {}",
                    before.path.display(),
                    before.base + size
                );
                findings.add(FindingKind::Layout, &file.path, u64::MAX, text);
            }
            if file.size != size {
                // A crash may leave the newest file without its size.
                let is_newest = index + 1 == files.len();
                let at = if is_newest { file.base } else { u64::MAX };
                let text = format!("has {} bytes, but the first file has {size}", file.size);
                findings.add(FindingKind::Layout, &file.path, at, text);
            }
        }
        Ok(())
    }

    /// Checks that the log ends where rmqpy left it, if rmqpy stopped last.
    fn check_manifest(
        &self,
        checkpoint: &Checkpoint,
        extent: &Extent,
        last: Option<(u64, u32)>,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        let path = self.paths.own().join("manifest");
        let bytes = self.disk.read_front(&path, MANIFEST_BYTES)?;
        let Some(manifest) = Manifest::decode(&bytes) else {
            if !bytes.is_empty() {
                findings.add(
                    FindingKind::Manifest,
                    &path,
                    u64::MAX,
                    "not a valid manifest, or its CRC does not match".to_owned(),
                );
            }
            return Ok(());
        };
        // A manifest of another checkpoint means that Apache's broker has used the folder since.
        let Some(stop) = manifest.clean_stop.filter(|_| manifest.checkpoint == *checkpoint) else {
            return Ok(());
        };
        if stop.log_end != extent.end {
            let text = format!("the log ended at {} and now ends at {}", stop.log_end, extent.end);
            findings.add(FindingKind::Manifest, &path, u64::MAX, text);
        } else if last.is_some_and(|last| last != (stop.last_record, stop.last_record_crc)) {
            let text = "the last record has changed".to_owned();
            findings.add(FindingKind::Manifest, &path, u64::MAX, text);
        }
        Ok(())
    }
}

fn add_corrupt_range(range: &CorruptRange, findings: &mut Findings) {
    let text = format!("{} bytes are not a record: {}", range.end - range.at, range.reason);
    findings.add(FindingKind::Record, &range.path, range.at, text);
}
