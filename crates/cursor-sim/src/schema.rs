//! Encodes and decodes Cursor's messages by name, as proto3 JSON.
//!
//! The simulator uses descriptors and never the generated structs, so that a scenario can send
//! any message and the recording lists unknown fields.

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

use cursor_proto::DESCRIPTORS;

/// The messages of a client on a run.
pub(super) const CLIENT_MESSAGE: &str = "agent.v1.AgentClientMessage";
/// The messages of the server on a run.
pub(super) const SERVER_MESSAGE: &str = "agent.v1.AgentServerMessage";
/// The state in a checkpoint.
pub(super) const CONVERSATION_STATE: &str = "agent.v1.ConversationStateStructure";

/// Why JSON or bytes are not a message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MessageCodecError {
    /// The schema has no message with this name.
    #[error("no message {0} in the schema")]
    NoMessage(String),
    /// The JSON does not match the message.
    #[error("not a {message}: {reason}")]
    Json {
        /// Full name of the message.
        message: String,
        /// The deserializer's error.
        reason: String,
    },
    /// The bytes cannot be decoded.
    #[error("bytes are not a {message}: {reason}")]
    Bytes {
        /// Full name of the message.
        message: String,
        /// The decoder's error.
        reason: String,
    },
}

/// Which fields JSON includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Detail {
    /// Fields that were on the wire.
    Present,
    /// Also fields without presence that have their default value, for comparisons.
    WithDefaults,
}

pub(super) fn message(name: &str) -> Result<MessageDescriptor, MessageCodecError> {
    static POOL: OnceLock<Option<DescriptorPool>> = OnceLock::new();
    POOL.get_or_init(|| DescriptorPool::decode(DESCRIPTORS).ok())
        .as_ref()
        .and_then(|pool| pool.get_message_by_name(name))
        .ok_or_else(|| MessageCodecError::NoMessage(name.to_owned()))
}

/// Encodes proto3 JSON as the named message.
pub(super) fn encode(name: &str, json: &Value) -> Result<Bytes, MessageCodecError> {
    let message = DynamicMessage::deserialize(message(name)?, json).map_err(|error| {
        MessageCodecError::Json {
            message: name.to_owned(),
            reason: error.to_string(),
        }
    })?;
    Ok(message.encode_to_vec().into())
}

/// Decodes bytes as the named message.
pub(super) fn decode(name: &str, bytes: &[u8]) -> Result<DynamicMessage, MessageCodecError> {
    DynamicMessage::decode(message(name)?, bytes).map_err(|error| MessageCodecError::Bytes {
        message: name.to_owned(),
        reason: error.to_string(),
    })
}

/// Returns a message as JSON; `unknownFields` lists the numbers of unknown fields in each object.
pub(super) fn to_json(message: &DynamicMessage, detail: Detail) -> Value {
    let options = SerializeOptions::new().skip_default_fields(detail == Detail::Present);
    let mut json = message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .unwrap_or_else(|error| json!({ "unreadable": error.to_string() }));
    add_unknown_fields(message, &mut json);
    json
}

/// Returns bytes of the named message as JSON, or `{"unreadable": reason}`.
pub(super) fn bytes_to_json(name: &str, bytes: &[u8], detail: Detail) -> Value {
    match decode(name, bytes) {
        Ok(message) => to_json(&message, detail),
        Err(error) => json!({ "unreadable": error.to_string() }),
    }
}

/// A message as JSON, with and without default values.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct MessageJson {
    /// The fields that were on the wire.
    pub(super) present: Value,
    /// Also fields that have their default value.
    pub(super) with_defaults: Value,
}

impl MessageJson {
    /// Converts a message.
    pub(super) fn new(message: &DynamicMessage) -> Self {
        Self {
            present: to_json(message, Detail::Present),
            with_defaults: to_json(message, Detail::WithDefaults),
        }
    }

    /// Returns a member.
    pub(super) fn part(&self, name: &str) -> Self {
        Self {
            present: self.present[name].clone(),
            with_defaults: self.with_defaults[name].clone(),
        }
    }
}

fn add_unknown_fields(message: &DynamicMessage, json: &mut Value) {
    let Value::Object(object) = json else {
        return;
    };
    for (field, value) in message.fields() {
        let Some(json) = object.get_mut(field.json_name()) else {
            continue;
        };
        match (value, json) {
            (Field::Message(inner), json) => add_unknown_fields(inner, json),
            (Field::List(items), Value::Array(list)) => {
                for (item, json) in items.iter().zip(list) {
                    if let Field::Message(inner) = item {
                        add_unknown_fields(inner, json);
                    }
                }
            }
            _ => {}
        }
    }
    // Google's own types have a special JSON form that cannot take another key.
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

/// Returns the name of a run message by its oneof cases: `execClientMessage.readResult`.
pub(super) fn kind(message: &DynamicMessage) -> String {
    let Some((outer, value)) = set_case(message) else {
        return unknown_kind(message);
    };
    let Field::Message(inner) = value else {
        return outer;
    };
    if real_oneof(&inner.descriptor()).is_none() {
        return outer;
    }
    match set_case(&inner) {
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

/// Returns the JSON name and value of the oneof case that is set.
fn set_case(message: &DynamicMessage) -> Option<(String, Field)> {
    let oneof = real_oneof(&message.descriptor())?;
    let field = oneof.fields().find(|field| message.has_field(field))?;
    let value = message.get_field(&field).into_owned();
    Some((field.json_name().to_owned(), value))
}

fn real_oneof(message: &MessageDescriptor) -> Option<prost_reflect::OneofDescriptor> {
    message.oneofs().find(|oneof| !oneof.is_synthetic())
}

/// Returns the first member of an object: the case of a oneof in JSON.
pub(super) fn case(json: &Value) -> Option<(&str, &Value)> {
    let (name, value) = json.as_object()?.iter().next()?;
    Some((name, value))
}

/// Returns an object with one member.
pub(super) fn single(name: &str, value: Value) -> Value {
    let mut object = Map::new();
    object.insert(name.to_owned(), value);
    Value::Object(object)
}

/// Returns an `ErrorDetails` message as a detail of a Connect error.
pub(super) fn error_details(details: &Value) -> Result<Value, MessageCodecError> {
    let name = "aiserver.v1.ErrorDetails";
    let value = base64(&encode(name, details)?);
    let value = value.trim_end_matches('=');
    Ok(json!({ "type": name, "value": value, "debug": details }))
}

/// Encodes bytes as proto3 JSON does.
pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64.encode(bytes)
}

/// Decodes bytes from their proto3 JSON form.
pub(super) fn from_base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Encodes bytes as lowercase hex.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Decodes hex; whitespace is ignored.
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
    fn recorded_messages_encode_to_the_same_bytes() {
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
        for (name, json, bytes, expected) in cases {
            let encoded = encode(name, &json).unwrap();
            assert_eq!(hex(&encoded), bytes);
            let decoded = decode(name, &encoded).unwrap();
            assert_eq!(to_json(&decoded, Detail::Present), json);
            assert_eq!(kind(&decoded), expected);
        }
    }

    #[test]
    fn unknown_fields_are_listed_in_their_object() {
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
    fn a_state_in_a_request_round_trips() {
        let json = json!({"runRequest": {"conversationState": {"turns": ["AAE="], "mode": "AGENT_MODE_AGENT"}}});
        let bytes = encode(CLIENT_MESSAGE, &json).unwrap();
        assert_eq!(bytes_to_json(CLIENT_MESSAGE, &bytes, Detail::Present), json);
    }
}
