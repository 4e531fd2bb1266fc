//! Text that is not UTF-8, in messages that are only shown: what cannot be read is replaced.

use bytes::Bytes;
use prost_reflect::{Kind, MessageDescriptor};

use super::drift::schema;
use super::fields::{Value, fields, put_bytes};

const INTERACTION_UPDATE: &str = "agent.v1.InteractionUpdate";
/// The updates among the server's messages. Everything else is acted on or kept, and must be
/// right.
const UPDATE: u32 = 1;

/// Messages within messages; as deep as the decoder goes.
const DEEPEST: usize = 100;

/// A server message with the texts of its update mended.
pub(super) fn update(message: &Bytes) -> Option<Bytes> {
    let update = schema()?.get_message_by_name(INTERACTION_UPDATE)?;
    let mut mended = Vec::with_capacity(message.len());
    for field in fields(message.clone()) {
        let field = field.ok()?;
        match field.value {
            Value::Bytes(inner) if field.number == UPDATE => {
                put_bytes(&mut mended, UPDATE, &texts(&update, inner, DEEPEST)?);
            }
            _ => mended.extend_from_slice(&field.raw),
        }
    }
    Some(mended.into())
}

fn texts(descriptor: &MessageDescriptor, message: Bytes, depth: usize) -> Option<Vec<u8>> {
    let deeper = depth.checked_sub(1)?;
    let mut mended = Vec::with_capacity(message.len());
    for field in fields(message) {
        let field = field.ok()?;
        let kind = descriptor.get_field(field.number).map(|known| known.kind());
        match (field.value, kind) {
            (Value::Bytes(text), Some(Kind::String)) => {
                let text = String::from_utf8_lossy(&text);
                put_bytes(&mut mended, field.number, text.as_bytes());
            }
            (Value::Bytes(inner), Some(Kind::Message(inside))) => {
                put_bytes(&mut mended, field.number, &texts(&inside, inner, deeper)?);
            }
            _ => mended.extend_from_slice(&field.raw),
        }
    }
    Some(mended)
}
