//! The stored form of a conversation.
//!
//! A journal is two lines: a header with the format's version and a checksum, then the entry. A
//! file that does not match its checksum is damaged, even if it parses.

use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::fingerprint::Fingerprint;
use crate::hex::hex;

/// Incremented when an older sidecar could not read what a newer one writes. All versions from 1 on
/// are read: version 1 has a hash for each message of the history.
const VERSION: u32 = 2;

/// Everything that a later turn needs to continue.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct JournalEntry {
    /// Cursor's id of the conversation.
    pub conversation_id: String,
    /// The key that its blobs are bound to.
    pub blob_key: String,
    /// Fingerprint of the API key that the conversation belongs to.
    pub account: String,
    /// The history that the state stands for; `None` if it stands for none.
    pub sent: Option<Fingerprint>,
    /// The last checkpoint, byte for byte.
    #[serde(with = "base64_bytes")]
    pub state: Option<Bytes>,
    /// The part of the answer to that history that the state includes; `None` if it was not
    /// recorded. Earlier sidecars neither wrote nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<String>,
    /// The last pause of the current turn. Earlier sidecars neither wrote nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pause: Option<PausedTurn>,
    /// Messages that the host injected and that the state does not include. Earlier sidecars
    /// neither wrote nor read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub messages: Vec<StoredMessage>,
    /// The rest of a complete answer that the host has not received. Earlier sidecars neither wrote
    /// nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unread: Option<String>,
    /// How many blobs were stored when it was written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blobs: Option<u64>,
    /// How many bytes they had. Earlier sidecars neither wrote nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blob_bytes: Option<u64>,
    /// Checksums of the blobs whose file name is not their checksum. Earlier sidecars neither
    /// wrote nor read them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sums: Option<BlobChecksums>,
}

/// A message of the user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredMessage {
    /// Its text.
    pub text: String,
    /// Its images.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub images: Vec<StoredImage>,
}

/// An image of a message.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoredImage {
    /// Its MIME type, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Its bytes.
    #[serde(with = "base64_bytes")]
    pub data: Option<Bytes>,
}

/// SHA-256 in hex, by file name.
pub type BlobChecksums = std::collections::BTreeMap<String, String>;

/// A turn that waits for its host. Written before the host is shown the calls.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PausedTurn {
    /// The pending calls.
    pub calls: Vec<PendingCall>,
    /// The calls of earlier pauses in the same turn. Earlier sidecars neither wrote nor read them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub earlier: Vec<PendingCall>,
    /// Number of complete turns before this one.
    pub turns: usize,
    /// Fingerprint of those turns, from the host's own messages.
    pub history: String,
    /// When the pause started, in milliseconds since 1970. Not updated by anything that happens
    /// during the pause.
    pub recorded_at: i64,
    /// The session's key; `None` if the host gave no session id.
    pub session: Option<String>,
}

impl PausedTurn {
    /// Returns all calls of the turn, oldest first.
    pub fn all(&self) -> Vec<PendingCall> {
        [self.earlier.as_slice(), &self.calls].concat()
    }
}

/// A pending tool call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingCall {
    /// The host's id of the call.
    pub id: String,
    /// The host's name of the tool.
    pub tool: String,
    /// Cursor's own id of the call. Earlier sidecars neither wrote nor read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
}

impl std::fmt::Debug for JournalEntry {
    /// Shows neither the key nor the state.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalEntry")
            .field("conversation_id", &self.conversation_id)
            .field("state", &self.state.as_ref().map(Bytes::len))
            .field("pause", &self.pause)
            .finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    sha256: String,
}

/// Why a journal cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// It does not have two lines, or a line is invalid.
    #[error("it is not a journal")]
    Shape,
    /// The checksum does not match.
    #[error("its checksum does not match")]
    Checksum,
    /// The format version is not supported.
    #[error("it has format {0}, this sidecar reads {VERSION}")]
    Version(u32),
}

/// Encodes a journal.
pub fn encode(entry: &JournalEntry) -> Result<Vec<u8>, serde_json::Error> {
    let body = serde_json::to_vec(entry)?;
    let header = Header {
        version: VERSION,
        sha256: checksum(&body),
    };
    let mut bytes = serde_json::to_vec(&header)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&body);
    bytes.push(b'\n');
    Ok(bytes)
}

/// Decodes a journal.
pub fn decode(bytes: &[u8]) -> Result<JournalEntry, JournalError> {
    let at = bytes
        .iter()
        .position(|b| *b == b'\n')
        .ok_or(JournalError::Shape)?;
    let header: Header = serde_json::from_slice(&bytes[..at]).map_err(|_| JournalError::Shape)?;
    if !(1..=VERSION).contains(&header.version) {
        return Err(JournalError::Version(header.version));
    }
    let body = bytes[at + 1..]
        .strip_suffix(b"\n")
        .ok_or(JournalError::Shape)?;
    if checksum(body) != header.sha256 {
        return Err(JournalError::Checksum);
    }
    serde_json::from_slice(body).map_err(|_| JournalError::Shape)
}

pub(super) fn checksum(bytes: &[u8]) -> String {
    hex(Sha256::digest(bytes))
}

mod base64_bytes {
    use base64::Engine as _;
    use serde::{Deserializer, Serializer, de::Error as _};

    use super::{BASE64, Bytes, Deserialize as _};

    pub(super) fn serialize<S: Serializer>(
        bytes: &Option<Bytes>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        match bytes {
            Some(bytes) => to.serialize_some(&BASE64.encode(bytes)),
            None => to.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Bytes>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| {
            BASE64
                .decode(text)
                .map(Bytes::from)
                .map_err(D::Error::custom)
        })
        .transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Message;
    use proptest::prelude::*;

    fn entry(state: Option<&[u8]>) -> JournalEntry {
        JournalEntry {
            conversation_id: "agent-1".into(),
            blob_key: "ab".repeat(32),
            account: "0123456789abcdef".into(),
            sent: Some(Fingerprint::of("S", &[])),
            state: state.map(Bytes::copy_from_slice),
            answer: None,
            pause: None,
            messages: Vec::new(),
            unread: None,
            blobs: None,
            blob_bytes: None,
            sums: None,
        }
    }

    #[test]
    fn a_version_of_the_future_is_named() {
        let text = String::from_utf8(encode(&entry(None)).unwrap()).unwrap();
        let newer = text.replacen("\"version\":2", "\"version\":9", 1);
        assert_eq!(decode(newer.as_bytes()), Err(JournalError::Version(9)));
    }

    #[test]
    fn a_pause_is_stored_and_a_journal_of_version_1_can_be_read() {
        let call = PendingCall {
            id: "c1".into(),
            tool: "look".into(),
            cursor: Some("toolu_1".into()),
        };
        let paused = PausedTurn {
            calls: vec![call.clone()],
            earlier: vec![call],
            turns: 3,
            history: "0123".into(),
            recorded_at: 1_800_000_000_000,
            session: Some("4567".into()),
        };
        let entry = JournalEntry {
            answer: Some("Looking.".into()),
            pause: Some(paused),
            messages: vec![StoredMessage {
                text: "hurry".into(),
                images: vec![StoredImage {
                    mime_type: Some("image/png".into()),
                    data: Some(Bytes::from_static(b"dots")),
                }],
            }],
            unread: Some("The end.".into()),
            ..entry(Some(b"state"))
        };
        assert_eq!(decode(&encode(&entry).unwrap()), Ok(entry));
        let before = r#"{"conversationId":"agent-1","blobKey":"ab","account":"a","sent":{"systemHash":"8de0b3c47f112c59","messageHashes":["37003b3d095c5c89"]},"state":null}"#;
        let header = format!(
            r#"{{"version":1,"sha256":"{}"}}"#,
            checksum(before.as_bytes())
        );
        let read = decode(format!("{header}\n{before}\n").as_bytes()).unwrap();
        let sent = Fingerprint::of("S", &[Message::user("hi").at(7)]);
        assert_eq!(
            (read.conversation_id.as_str(), read.pause, read.sent),
            ("agent-1", None, Some(sent))
        );
    }

    #[test]
    fn debug_output_contains_neither_secrets_nor_state() {
        let shown = format!("{:?}", entry(Some(b"state")));
        assert!(
            !shown.contains("abab") && !shown.contains("state\""),
            "{shown}"
        );
    }

    proptest! {
        #[test]
        fn a_journal_survives_encoding(state in proptest::option::of(proptest::collection::vec(any::<u8>(), 0..200))) {
            let entry = entry(state.as_deref());
            prop_assert_eq!(decode(&encode(&entry).unwrap()), Ok(entry));
        }

        #[test]
        fn any_changed_byte_is_detected(at in 0_usize..10_000, change in 1_u8..=255) {
            let mut bytes = encode(&entry(Some(b"some state"))).unwrap();
            let at = at % bytes.len();
            bytes[at] ^= change;
            // Every byte of the header matters too.
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn any_truncation_is_detected(at in 0_usize..10_000) {
            let bytes = encode(&entry(Some(b"some state"))).unwrap();
            prop_assert!(decode(&bytes[..at % bytes.len()]).is_err());
        }

        #[test]
        fn random_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(decode(&bytes).is_err());
        }
    }
}
