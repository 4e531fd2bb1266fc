//! Wire drift: fields and kinds from the server that our schema does not know.
//!
//! Costs one length comparison per message while nothing is new; only a message with unknown
//! fields is parsed again, with its descriptors.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use prost_reflect::{DescriptorPool, Kind, MessageDescriptor};

use super::raw_fields;
use crate::DESCRIPTORS;

/// Maximum number of distinct kinds that are counted, to bound memory.
const MAX_KINDS: usize = 512;
/// How much of a message is inspected. The beginning suffices to notice a new schema, and a
/// message may contain millions of unknown fields.
const MAX_INSPECTED: usize = 64 * 1024;
/// Maximum nesting that is inspected, because the walk is recursive.
const MAX_DEPTH: usize = 64;

/// Counts of unknown fields by `Message.number`, and of unknown kinds by name.
#[derive(Debug, Default)]
pub struct Drift {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Drift {
    /// Counts one occurrence of an unknown field or kind.
    pub fn count(&self, what: impl Into<String>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let what = what.into();
        if counts.len() < MAX_KINDS || counts.contains_key(&what) {
            let kind = what.clone();
            let count = counts.entry(what).or_default();
            *count += 1;
            let count = *count;
            drop(counts);
            // Logged at powers of two only, because the log should show how many, not each one.
            if count.is_power_of_two() {
                tracing::debug!(kind, count, "drift");
            }
        }
    }

    /// Counts the unknown fields at the beginning of a message. For messages whose known fields do
    /// not account for all bytes. Allocates only for what is counted.
    pub fn inspect(&self, message: &str, payload: &[u8]) {
        let Some(descriptor) = schema().and_then(|pool| pool.get_message_by_name(message)) else {
            return;
        };
        let looked_at = &payload[..payload.len().min(MAX_INSPECTED)];
        self.walk(&descriptor, Bytes::copy_from_slice(looked_at), MAX_DEPTH);
    }

    fn walk(&self, descriptor: &MessageDescriptor, message: Bytes, depth: usize) {
        for field in raw_fields::beginning(message).map_while(Result::ok) {
            match descriptor.get_field(field.number) {
                None => self.count(format!("{}.{}", descriptor.full_name(), field.number)),
                Some(known) => {
                    if let (Kind::Message(inner), Some(bytes)) = (known.kind(), field.value.bytes())
                        && depth > 0
                    {
                        self.walk(&inner, bytes.clone(), depth - 1);
                    }
                }
            }
        }
    }

    /// Returns all counts so far.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// Returns the schema of all messages, built on first use.
pub fn schema() -> Option<&'static DescriptorPool> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).ok())
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raw_fields::put_bytes;

    #[test]
    fn unknown_fields_are_counted_by_message_and_number() {
        let mut delta = vec![0x0a, 0x02, b'h', b'i'];
        put_bytes(&mut delta, 900, b"new");
        let mut update = Vec::new();
        put_bytes(&mut update, 1, &delta);
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &update);
        put_bytes(&mut message, 99, b"newer");

        let drift = Drift::default();
        drift.inspect("agent.v1.AgentServerMessage", &message);
        drift.inspect("agent.v1.AgentServerMessage", &message);
        let counts: Vec<_> = drift.counts().into_iter().collect();
        assert_eq!(
            counts,
            [
                ("agent.v1.AgentServerMessage.99".to_owned(), 2),
                ("agent.v1.TextDeltaUpdate.900".to_owned(), 2),
            ]
        );
    }

    #[test]
    fn only_the_beginning_of_a_large_message_is_inspected() {
        let unknown = [0xf8, 0x0f, 1]; // field 255
        let mut update = unknown.repeat(2_000_000);
        put_bytes(&mut update, 900, b"after");
        let mut message = Vec::new();
        put_bytes(&mut message, 1, &update);
        let drift = Drift::default();
        drift.inspect("agent.v1.AgentServerMessage", &message);
        let counts: Vec<_> = drift.counts().into_iter().collect();
        let [(name, count)] = &counts[..] else {
            panic!("{counts:?}");
        };
        assert_eq!(name, "agent.v1.InteractionUpdate.255");
        assert!(*count <= (MAX_INSPECTED / unknown.len()) as u64, "{count}");
    }

    #[test]
    fn the_number_of_counted_kinds_is_bounded() {
        let drift = Drift::default();
        for number in 0..10_000 {
            drift.count(format!("x.{number}"));
        }
        assert_eq!(drift.counts().len(), MAX_KINDS);
    }
}
