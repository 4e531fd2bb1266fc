//! The hash of a message.

use std::fmt::{self, Display};
use std::sync::OnceLock;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A short hash of what identifies a message. A journal holds one for each message, so it is read
/// and written without allocations.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageHash(pub(super) u64);

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
