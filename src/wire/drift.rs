//! Wire drift: what the server sends that our schema does not know.
//!
//! Costs one length comparison a message while nothing is new; only a message that carries
//! something unknown is read again, by its descriptors.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock, PoisonError};

use prost_reflect::{DescriptorPool, DynamicMessage, ReflectMessage as _, Value};

use super::proto::DESCRIPTORS;

/// Kinds of unknown things kept apart; a flood of new ones must not grow without end.
const MAX_KINDS: usize = 512;

/// Counts of unknown fields by `Message.number`, and of unknown kinds by name.
#[derive(Debug, Default)]
pub struct Drift {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl Drift {
    /// Notes an answer we gave to something we have no handler for.
    pub fn count(&self, what: impl Into<String>) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let what = what.into();
        if counts.len() < MAX_KINDS || counts.contains_key(&what) {
            let kind = what.clone();
            let count = counts.entry(what).or_default();
            *count += 1;
            let count = *count;
            drop(counts);
            // Told ever more rarely: the log shall show how much, not each one.
            if count.is_power_of_two() {
                tracing::debug!(kind, count, "drift");
            }
        }
    }

    /// Looks through a message whose known fields do not account for all its bytes.
    pub fn inspect(&self, message: &str, payload: &[u8]) {
        let Some(descriptor) = schema().and_then(|pool| pool.get_message_by_name(message)) else {
            return;
        };
        if let Ok(message) = DynamicMessage::decode(descriptor, payload) {
            self.walk(&message);
        }
    }

    fn walk(&self, message: &DynamicMessage) {
        for field in message.unknown_fields() {
            self.count(format!(
                "{}.{}",
                message.descriptor().full_name(),
                field.number()
            ));
        }
        for (_, value) in message.fields() {
            self.walk_value(value);
        }
    }

    fn walk_value(&self, value: &Value) {
        match value {
            Value::Message(message) => self.walk(message),
            Value::List(items) => items.iter().for_each(|item| self.walk_value(item)),
            Value::Map(entries) => entries.values().for_each(|item| self.walk_value(item)),
            _ => {}
        }
    }

    /// Everything counted so far.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// The typed schema, built once when first asked for.
pub fn schema() -> Option<&'static DescriptorPool> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).ok())
        .as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::fields::put_bytes;

    #[test]
    fn unknown_fields_are_counted_where_they_stand() {
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
    fn a_flood_of_new_kinds_is_bounded() {
        let drift = Drift::default();
        for number in 0..10_000 {
            drift.count(format!("x.{number}"));
        }
        assert_eq!(drift.counts().len(), MAX_KINDS);
    }
}
