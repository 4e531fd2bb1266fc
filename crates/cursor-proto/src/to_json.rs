//! Messages as JSON, by their descriptors: for display, never for replies.

use prost::Message;
use prost_reflect::{DynamicMessage, SerializeOptions};
use serde_json::Value as Json;

use super::drift::schema;

/// Returns a message as proto3 JSON without default values and with 64-bit integers as numbers.
/// `None` if the schema has no message of that name.
pub fn json(name: &str, message: &impl Message) -> Option<Json> {
    let descriptor = schema()?.get_message_by_name(name)?;
    let bytes = message.encode_to_vec();
    let message = DynamicMessage::decode(descriptor, bytes.as_slice()).ok()?;
    let options = SerializeOptions::new()
        .skip_default_fields(true)
        .stringify_64_bit_integers(false);
    message
        .serialize_with_options(serde_json::value::Serializer, &options)
        .ok()
}
