//! Progress: `compaction/position-checkpoint`, the offset up to which each queue is compacted.
//!
//! Apache's file: `{"queueOffsetMap":{"TOPIC_QUEUE":OFFSET}}`, with the last offset that a round has covered.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::positions::QueueKey;
use crate::store::disk::Disk;
use crate::store::error::StoreError;

use super::layout::folder;

const NAME: &str = "position-checkpoint";
const MEMBER: &str = "queueOffsetMap";

pub(super) struct Progress {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    /// Offsets after the last one covered, by the name of a queue.
    offsets: BTreeMap<String, u64>,
}

impl Progress {
    /// Reads the file. Without it, or if it cannot be read, no queue is compacted yet.
    pub(super) fn load(disk: &Arc<dyn Disk>, root: &Path) -> Result<Self, StoreError> {
        let dir = folder(root);
        let text = disk.read_front(&dir.join(NAME), usize::MAX)?;
        let value: Option<Value> = serde_json::from_slice(&text).ok();
        let map = value.as_ref().and_then(|value| value.get(MEMBER)?.as_object());
        let offset = |(name, last): (&String, &Value)| Some((name.clone(), last.as_u64()?.checked_add(1)?));
        let offsets = map.into_iter().flatten().filter_map(offset).collect();
        Ok(Self { disk: Arc::clone(disk), dir, offsets })
    }

    /// Returns the offset before which a queue is compacted.
    pub(super) fn of(&self, key: &QueueKey) -> u64 {
        self.offsets.get(&name_of(key)).copied().unwrap_or(0)
    }

    /// Sets the offset before which a queue is compacted, durably; 0 removes the queue.
    pub(super) fn set(&mut self, key: &QueueKey, offset: u64) -> Result<(), StoreError> {
        if self.of(key) == offset {
            return Ok(());
        }
        match offset {
            0 => self.offsets.remove(&name_of(key)),
            _ => self.offsets.insert(name_of(key), offset),
        };
        let entries = self.offsets.iter().map(|(name, next)| (name.clone(), Value::from(next - 1)));
        let text = json!({ MEMBER: entries.collect::<Map<_, _>>() }).to_string();
        self.disk.replace_file(&self.dir, NAME, text.as_bytes())
    }
}

fn name_of(key: &QueueKey) -> String {
    format!("{}_{}", key.topic, key.queue_id)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::disk::Open;
    use crate::store::disk::simulated::SimDisk;

    #[test]
    fn positions_are_in_apaches_form_and_survive() {
        let disk = SimDisk::new().shared();
        let root = Path::new("/store");
        let (one, two) = (QueueKey::new("profiles", 0), QueueKey::new("a_b", 3));
        let mut progress = Progress::load(&disk, root).expect("a working disk");
        progress.set(&one, 1235).expect("a working disk");
        progress.set(&two, 1).expect("a working disk");
        let path = root.join("compaction/position-checkpoint");
        let text = disk.read_front(&path, 1000).expect("the file");
        assert_eq!(text, br#"{"queueOffsetMap":{"a_b_3":0,"profiles_0":1234}}"#);
        let mut again = Progress::load(&disk, root).expect("a working disk");
        assert_eq!((again.of(&one), again.of(&two)), (1235, 1));
        again.set(&two, 0).expect("a working disk");
        assert_eq!(Progress::load(&disk, root).expect("a working disk").of(&two), 0);
        disk.open(&path, Open::Write).and_then(|file| file.write_at(b"?", 0)).expect("a working disk");
        assert_eq!(Progress::load(&disk, root).expect("a working disk").of(&one), 0);
    }
}
