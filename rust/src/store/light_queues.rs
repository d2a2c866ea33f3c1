//! Light queues: queues of messages that belong to other topics (LMQ).
//!
//! A message names them in a property. Its record is stored once, for the topic it was sent to. A light queue is named
//! like a topic and has the id 0, and its files are those of any queue.
//!
//! Invariant: sends and reads never create a light queue beyond the limit, because each takes memory, and with its first
//! message a file and two folders.
//! Threads: any.

use crate::message::DispatchError;
use crate::message::multi_dispatch;
use crate::message::properties::{self, PROPERTIES_BYTES_MAX, name};
use crate::message::topic::admits_light;

use super::Store;
use super::error::{PutError, StoreError};
use super::log::LightPut;

/// The reason why a message is not stored for its light queues.
#[derive(Debug, thiserror::Error)]
pub enum LightError {
    #[error(transparent)]
    List(#[from] DispatchError),
    /// The remark of Apache's broker, which clients compare.
    #[error("[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]lmq consume queue num exceeded.")]
    Quota,
    #[error(transparent)]
    Put(PutError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Store {
    /// Creates the light queues that a message to `topic` names. A message for later gets its offsets when it cannot be
    /// refused any more, so it must have room for the longest ones.
    ///
    /// # Errors
    /// The list is illegal, or more light queues would exist than are allowed; none was created then.
    pub fn admit_lights(&self, topic: &str, properties: &[u8], is_for_later: bool) -> Result<(), LightError> {
        let Some(list) = self.list_of_lights(topic.as_bytes(), properties) else { return Ok(()) };
        let names = multi_dispatch::names(list)?;
        if is_for_later && properties.len() + LightPut::offsets_bytes_max(names.len()) > PROPERTIES_BYTES_MAX
        {
            return Err(LightError::Put(PutError::TooManyLights));
        }
        let queues = &self.dispatcher.derived().queues;
        let missing = names.iter().filter(|name| queues.get(name, 0).is_none()).count();
        if missing > 0 && queues.lights().saturating_add(missing) as u64 > self.options.light_queues_limit() {
            return Err(LightError::Quota);
        }
        names.iter().try_for_each(|name| queues.get_or_create(name, 0).map(drop))?;
        Ok(())
    }

    /// Returns what an append for `topic` needs to store a message with these properties in its light queues. `None` if it
    /// has none.
    #[must_use]
    pub fn light_put(&self, topic: &[u8], properties: &[u8]) -> Option<Box<LightPut>> {
        let names = multi_dispatch::names(self.list_of_lights(topic, properties)?).ok()?;
        let queues = &self.dispatcher.derived().queues;
        let queues =
            names.iter().map(|name| queues.get_or_create(name, 0).ok()).collect::<Option<Vec<_>>>()?;
        Some(Box::new(LightPut::new(queues, properties)))
    }

    /// Returns the number of light queues.
    #[must_use]
    pub fn light_queues(&self) -> usize {
        self.dispatcher.derived().queues.lights()
    }

    fn list_of_lights<'a>(&self, topic: &[u8], properties: &'a [u8]) -> Option<&'a [u8]> {
        let is_on = self.options.multi_dispatch && admits_light(topic);
        is_on.then(|| properties::get(properties, name::LIGHT_QUEUES)).flatten()
    }
}
