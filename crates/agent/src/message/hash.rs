//! The hash of a message, and of a history.

use std::fmt::{self, Display};
use std::sync::OnceLock;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use super::Message;

/// A short hash of what identifies a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHash(pub(super) u64);

/// The hash of a history: made of the hash of its last message and of the history before it. So
/// a history that has grown is compared and stored without its earlier messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HistoryHash([u8; 16]);

/// A message in its place: the hash of the history before it, and of the one that it ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HistoryLink {
    pub(super) before: HistoryHash,
    pub(super) after: HistoryHash,
}

impl HistoryHash {
    /// Returns the hash of this history and one more message.
    pub fn followed_by(self, message: MessageHash) -> Self {
        let mut hasher = Sha256::new();
        hasher.update(self.0);
        hasher.update(message.0.to_be_bytes());
        let digest = hasher.finalize();
        let mut hash = [0; 16];
        hash.copy_from_slice(&digest[..16]);
        Self(hash)
    }
}

impl Message {
    /// Returns the hash of the history that ends with this message at `index`, after a history of
    /// the given hash. Computed once in each place.
    pub fn end_history(&self, before: HistoryHash, index: usize) -> HistoryHash {
        match self.link.get() {
            // A history has one length, so the index is the same too.
            Some(link) if link.before == before => return link.after,
            _ => {}
        }
        let after = before.followed_by(self.hash(index));
        // Kept for the first history only: a message is rarely in two.
        let _ = self.link.set(HistoryLink { before, after });
        after
    }
}

impl Display for HistoryHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:032x}", u128::from_be_bytes(self.0))
    }
}

impl Serialize for HistoryHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HistoryHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        let number = u128::from_str_radix(&text, 16).map_err(D::Error::custom)?;
        Ok(Self(number.to_be_bytes()))
    }
}

/// The hash of a message with its index, once it was needed. A turn compares its whole history
/// several times.
#[derive(Debug, Clone, Default)]
pub(super) struct CachedHash(pub(super) OnceLock<(usize, MessageHash)>);

impl PartialEq for CachedHash {
    /// It follows from the other fields.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl MessageHash {
    /// Calls `read` with the hash in hex.
    pub(crate) fn with_hex<T>(self, read: impl FnOnce(&str) -> T) -> T {
        let mut hex = [0; 16];
        for (at, digit) in hex.iter_mut().enumerate() {
            let value = self.0 >> (60 - 4 * at) & 0xf;
            *digit = b"0123456789abcdef"[value as usize];
        }
        read(std::str::from_utf8(&hex).unwrap_or_default())
    }
}

impl Display for MessageHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_hex(|hex| formatter.write_str(hex))
    }
}

impl Serialize for MessageHash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.with_hex(|hex| to.serialize_str(hex))
    }
}

impl<'de> Deserialize<'de> for MessageHash {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_str(HashVisitor)
    }
}

struct HashVisitor;

impl Visitor<'_> for HashVisitor {
    type Value = MessageHash;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("the hash of a message in hex")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<MessageHash, E> {
        let number = u64::from_str_radix(text, 16);
        number.map(MessageHash).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_sixteen_digits_in_json() {
        for (number, json) in [
            (0, r#""0000000000000000""#),
            (0x0123_4567_89ab_cdef, r#""0123456789abcdef""#),
            (u64::MAX, r#""ffffffffffffffff""#),
        ] {
            let hash = MessageHash(number);
            assert_eq!(serde_json::to_string(&hash).unwrap(), json);
            assert_eq!(serde_json::from_str::<MessageHash>(json).unwrap(), hash);
            assert_eq!(format!("\"{hash}\""), json);
        }
        for wrong in [r#""""#, r#""x""#, "7", r#""fffffffffffffffff""#] {
            assert!(
                serde_json::from_str::<MessageHash>(wrong).is_err(),
                "{wrong}"
            );
        }
    }
}
