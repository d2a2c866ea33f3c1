//! Index load: opening of the index after an orderly stop or a crash.
//!
//! No error here prevents a start: files that cannot be loaded are removed, and maintenance rebuilds them from the
//! log.
//!
//! *Invariant*: before any entry is removed, the note names the position from which entries may be missing, so that
//! an interrupted start can be repeated.
//! Threads: recovery.

use std::path::PathBuf;

use crate::store::error::StoreError;

use super::index_file::IndexFile;
use super::indexed_note::EVERYTHING;
use super::{Files, Index};

impl Index {
    /// Loads the files unchanged, after an orderly stop. Unreadable files are left out, which changes the digest.
    pub(crate) fn load(&self) {
        let mut files = self.files.lock();
        files.noted = self.note.load().unwrap_or(0);
        let found = self.paths().unwrap_or_default();
        let sound = found.iter().filter(|(_, is_sound)| *is_sound);
        files.list =
            sound.filter_map(|(path, _)| IndexFile::open(&*self.disk, path, self.shape).ok()).collect();
    }

    /// Continues with the loaded files, at the end of the log.
    pub(crate) fn resume(&self, log_begin: u64, log_end: u64) {
        let noted = self.files.lock().noted;
        if noted == EVERYTHING {
            let mut files = self.files.lock();
            (files.written, files.durable) = (log_end, log_end);
            self.waiting.lock().begin(log_end, log_end);
        } else {
            self.load_cut(noted, log_begin, log_end);
        }
    }

    /// Loads the files and keeps only entries of records before `position`. Missing ones before it are marked as
    /// skipped, to be read again. A file that cannot be cut is removed together with the later ones. No error
    /// prevents the start.
    pub(crate) fn load_cut(&self, position: u64, log_begin: u64, until: u64) {
        let mut files = self.files.lock();
        let position = position.min(self.note.load().unwrap_or(0));
        let cut = self.cut_files(&mut files, position);
        let from = *cut.as_ref().unwrap_or(&position);
        let from = from.max(log_begin).min(until);
        (files.written, files.durable, files.is_complete) = (from, from, false);
        self.waiting.lock().begin(from, until);
        match cut {
            Ok(_) if from < until => self.report(&mut files, "rebuilt from there in the background"),
            Ok(_) => {}
            Err(error) => self.give_up(&mut files, &error),
        }
    }

    /// Cuts the files and returns the position from which records must be replayed.
    fn cut_files(&self, files: &mut Files, position: u64) -> Result<u64, StoreError> {
        files.list.clear();
        let mut from = position;
        self.save_note(files, from)?;
        let mut removed = Vec::new();
        for (path, is_sound) in self.paths()? {
            let cut = match removed.is_empty() && is_sound {
                true => IndexFile::cut(&*self.disk, &path, self.shape, position).ok(),
                false => None,
            };
            match cut {
                Some(Some(file)) => files.list.push(file),
                // All its records are at `position` or later.
                Some(None) => removed.push(path),
                None => {
                    from = from.min(files.list.last().map_or(0, IndexFile::end_physical));
                    removed.push(path);
                }
            }
        }
        if files.list.is_empty() {
            from = 0;
        }
        // Before any entry is missing.
        self.save_note(files, from)?;
        for path in &removed {
            self.disk.remove_file(path)?;
        }
        self.disk.sync_entries(&self.dir)?;
        Ok(from)
    }

    /// Lists files of the right name, oldest first, and whether they have the right size.
    fn paths(&self) -> Result<Vec<(PathBuf, bool)>, StoreError> {
        let entries = self.disk.entries(&self.dir)?;
        let is_index = |name: &str| name.len() == 17 && name.bytes().all(|byte| byte.is_ascii_digit());
        let found = entries.iter().filter(|entry| is_index(&entry.name) && !entry.is_dir);
        let size = self.shape.file_bytes() as u64;
        Ok(found.map(|entry| (self.dir.join(&entry.name), entry.size == size)).collect())
    }
}
