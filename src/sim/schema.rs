//! Cursor's messages by name, read and written as proto3 JSON.
//!
//! The simulator never touches the generated structs: it works on descriptors, so a
//! scenario can script any message and a field nobody declared is still shown.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use prost_reflect::prost::Message as _;
use prost_reflect::{
    DescriptorPool, DynamicMessage, MessageDescriptor, ReflectMessage as _, SerializeOptions,
    Value as Field,
};
use serde_json::{Map, Value, json};

use crate::wire::proto::DESCRIPTORS;

/// What a client sends on a run.
pub(super) const CLIENT_MESSAGE: &str = "agent.v1.AgentClientMessage";
/// What the server sends on a run.
pub(super) const SERVER_MESSAGE: &str = "agent.v1.AgentServerMessage";
/// The state a checkpoint carries.
pub(super) const CONVERSATION_STATE: &str = "agent.v1.ConversationStateStructure";

/// Why JSON is not a message, or bytes are not.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SchemaError {
    /// A name the schema does not have.
    #[error("no message {0} in the schema")]
    NoMessage(String),
    /// JSON that does not fit the message.
    #[error("not a {message}: {reason}")]
    Json {
        /// Full name of the message.
        message: String,
        /// What the JSON reader said.
        reason: String,
    },
    /// Bytes that do not decode.
    #[error("bytes are not a {message}: {reason}")]
    Bytes {
        /// Full name of the message.
        message: String,
        /// What the decoder said.
        reason: String,
    },
}

/// Which fields JSON shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Fields that were on the wire.
    Present,
    /// Also fields without presence that hold their default, for comparing.
    WithDefaults,
}

/// The descriptor of a message.
pub(super) fn message(name: &str) -> Result<MessageDescriptor, SchemaError> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).ok())
        .as_ref()
        .and_then(|pool| pool.get_message_by_name(name))
        .ok_or_else(|| SchemaError::NoMessage(name.to_owned()))
}

/// Encodes proto3 JSON as the named message.
pub(super) fn encode(name: &str, json: &Value) -> Result<Bytes, SchemaError> {
    let message =
        DynamicMessage::deserialize(message(name)?, json).map_err(|error| SchemaError::Json {
            message: name.to_owned(),
            reason: error.to_string(),
        })?;
    Ok(message.encode_to_vec().into())
}

/// Decodes bytes as the named message.
pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<DynamicMessage, SchemaError> {
    DynamicMessage::decode(message(name)?, bytes).map_err(|error| SchemaError::Bytes {
        message: name.to_owned(),
        reason: error.to_string(),
    })
}

/// A message as JSON, unknown fields listed by number where they were found.
pub(super) fn to_json(message: &DynamicMessage, detail: Detail) -> Value {
    let options = SerializeOptions::new().skip_default_fields(detail == Detail::Present);
    let mut json = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .unwrap_or_else(|error| json!({ "unreadable": error.to_string() }));
    note_unknown(message, &mut json);
    json
}

/// Bytes of the named message as JSON; what does not decode says so instead.
pub(super) fn bytes_to_json(name: &str, bytes: &[u8], detail: Detail) -> Value {
    match decode(name, bytes) {
        Ok(message) => to_json(&message, detail),
        Err(error) => json!({ "unreadable": error.to_string() }),
    }
}

/// A message in both degrees of detail.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Shown {
    /// What was on the wire.
    pub(super) present: Value,
    /// With defaults.
    pub(super) full: Value,
}

impl Shown {
    /// Shows a message.
    pub(super) fn new(message: &DynamicMessage) -> Self {
        Self {
            present: to_json(message, Detail::Present),
            full: to_json(message, Detail::WithDefaults),
        }
    }

    /// A part of it.
    pub(super) fn part(&self, name: &str) -> Self {
        Self {
            present: self.present[name].clone(),
            full: self.full[name].clone(),
        }
    }
}

fn note_unknown(message: &DynamicMessage, json: &mut Value) {
    let Value::Object(object) = json else {
        return;
    };
    for (field, value) in message.fields() {
        let Some(shown) = object.get_mut(field.json_name()) else {
            continue;
        };
        match (value, shown) {
            (Field::Message(inner), shown) => note_unknown(inner, shown),
            (Field::List(items), Value::Array(shown)) => {
                for (item, shown) in items.iter().zip(shown) {
                    if let Field::Message(inner) = item {
                        note_unknown(inner, shown);
                    }
                }
            }
            _ => {}
        }
    }
    // Google's own types have a JSON form of their own that cannot take another key.
    if message.descriptor().package_name() == "google.protobuf" {
        return;
    }
    let numbers: Vec<u32> = message
        .unknown_fields()
        .map(|field| field.number())
        .collect();
    if !numbers.is_empty() {
        object.insert("unknownFields".into(), json!(numbers));
    }
}

/// The name of a run message by its cases: `execClientMessage.readResult`.
pub(super) fn kind(message: &DynamicMessage) -> String {
    let Some((outer, value)) = chosen(message) else {
        return unknown_kind(message);
    };
    let Field::Message(inner) = value else {
        return outer;
    };
    if real_oneof(&inner.descriptor()).is_none() {
        return outer;
    }
    match chosen(&inner) {
        Some((name, _)) => format!("{outer}.{name}"),
        None => format!("{outer}.{}", unknown_kind(&inner)),
    }
}

fn unknown_kind(message: &DynamicMessage) -> String {
    match message.unknown_fields().next() {
        Some(field) => format!("unknown({})", field.number()),
        None => "empty".into(),
    }
}

/// The case of a message's oneof that is set: its JSON name and value.
fn chosen(message: &DynamicMessage) -> Option<(String, Field)> {
    let oneof = real_oneof(&message.descriptor())?;
    let field = oneof.fields().find(|field| message.has_field(field))?;
    let value = message.get_field(&field).into_owned();
    Some((field.json_name().to_owned(), value))
}

fn real_oneof(message: &MessageDescriptor) -> Option<prost_reflect::OneofDescriptor> {
    message.oneofs().find(|oneof| !oneof.is_synthetic())
}

/// The first member of an object: the case of a oneof written as JSON.
pub(super) fn case(json: &Value) -> Option<(&str, &Value)> {
    let (name, value) = json.as_object()?.iter().next()?;
    Some((name, value))
}

/// An object with one member.
pub(super) fn single(name: &str, value: Value) -> Value {
    let mut object = Map::new();
    object.insert(name.to_owned(), value);
    Value::Object(object)
}

/// Bytes as proto3 JSON writes them.
pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Bytes from their proto3 JSON form.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Lowercase hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Bytes from hex; blanks between bytes are allowed.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<u32> = text
        .chars()
        .filter(|c| !c.is_whitespace())
        .map(|c| c.to_digit(16))
        .collect::<Option<_>>()?;
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    Some(
        digits
            .chunks_exact(2)
            .map(|pair| (pair[0] * 16 + pair[1]) as u8)
            .collect(),
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_from_the_facts_have_their_known_bytes() {
        let cases = [
            (
                CLIENT_MESSAGE,
                json!({"clientHeartbeat": {}}),
                "3a00",
                "clientHeartbeat",
            ),
            (
                CLIENT_MESSAGE,
                json!({"execClientControlMessage": {"streamClose": {"id": 1}}}),
                "2a040a020801",
                "execClientControlMessage.streamClose",
            ),
            (
                CLIENT_MESSAGE,
                json!({"interactionResponse": {"id": 1, "webSearchRequestResponse": {"approved": {}}}}),
                "3206080112020a00",
                "interactionResponse.webSearchRequestResponse",
            ),
            (
                SERVER_MESSAGE,
                json!({"interactionUpdate": {"heartbeat": {}}}),
                "0a026a00",
                "interactionUpdate.heartbeat",
            ),
            (
                SERVER_MESSAGE,
                json!({"execServerMessage": {"id": 1, "requestContextArgs": {}, "execId": "exec-1"}}),
                "120c080152007a06657865632d31",
                "execServerMessage.requestContextArgs",
            ),
        ];
        for (name, json, bytes, wanted) in cases {
            let encoded = encode(name, &json).unwrap();
            assert_eq!(hex(&encoded), bytes);
            let decoded = decode(name, &encoded).unwrap();
            assert_eq!(to_json(&decoded, Detail::Present), json);
            assert_eq!(kind(&decoded), wanted);
        }
    }

    #[test]
    fn unknown_fields_are_listed_where_they_are() {
        // exec_server_message{id = 3, field 99 = "x"}, and field 60 = 1 beside it.
        let bytes = from_hex("12060803 9a060178 e00301").unwrap();
        let message = decode(SERVER_MESSAGE, &bytes).unwrap();
        assert_eq!(
            to_json(&message, Detail::Present),
            json!({"execServerMessage": {"id": 3, "unknownFields": [99]}, "unknownFields": [60]})
        );
        assert_eq!(kind(&message), "execServerMessage.unknown(99)");
    }

    #[test]
    fn a_state_inside_a_request_is_typed() {
        let json = json!({"runRequest": {"conversationState": {"turns": ["AAE="], "mode": "AGENT_MODE_AGENT"}}});
        let bytes = encode(CLIENT_MESSAGE, &json).unwrap();
        assert_eq!(bytes_to_json(CLIENT_MESSAGE, &bytes, Detail::Present), json);
    }
}
