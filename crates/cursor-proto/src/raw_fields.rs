//! Raw protobuf fields, for messages that must be kept without being understood.
//!
//! prost drops unknown fields, but a checkpoint must not lose any, so its fields are iterated
//! and removed here without re-encoding the others.

use bytes::{Buf as _, Bytes};

/// One field of a message as it is on the wire.
#[derive(Debug, Clone, PartialEq)]
pub struct Field {
    /// The field number.
    pub number: u32,
    /// The decoded value.
    pub value: Value,
    /// The bytes of tag and value.
    pub raw: Bytes,
}

/// A value by wire type.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Wire type 0.
    Varint(u64),
    /// Wire type 1.
    Fixed64(u64),
    /// Wire type 2.
    Bytes(Bytes),
    /// Wire type 5.
    Fixed32(u32),
}

/// Why bytes are not a protobuf message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FieldError {
    /// The bytes end inside a field.
    #[error("protobuf message ends inside a field")]
    Truncated,
    /// A varint of more than ten bytes.
    #[error("protobuf varint is too long")]
    Varint,
    /// A group or an undefined wire type.
    #[error("unsupported wire type {0}")]
    WireType(u8),
    /// Field number 0, or 2^29 and above.
    #[error("invalid protobuf field number")]
    Number,
}

/// Iterator over the fields of one message.
pub struct Fields {
    rest: Bytes,
    /// Whether the message may be truncated.
    is_beginning: bool,
}

/// Returns the fields of `message` in order; stops at the first error.
pub fn fields(message: Bytes) -> Fields {
    Fields {
        rest: message,
        is_beginning: false,
    }
}

/// Returns the fields of a message of which only the beginning is available. A truncated
/// length-delimited field is the last and has the available bytes.
pub fn beginning(message: Bytes) -> Fields {
    Fields {
        rest: message,
        is_beginning: true,
    }
}

impl Iterator for Fields {
    type Item = Result<Field, FieldError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let whole = self.rest.clone();
        let field = self.read(&whole);
        if field.is_err() {
            self.rest.clear();
        }
        Some(field)
    }
}

impl Fields {
    fn read(&mut self, whole: &Bytes) -> Result<Field, FieldError> {
        let tag = varint(&mut self.rest)?;
        let number = u32::try_from(tag >> 3).map_err(|_| FieldError::Number)?;
        if number == 0 || number >= 1 << 29 {
            return Err(FieldError::Number);
        }
        let value = match (tag & 7) as u8 {
            0 => Value::Varint(varint(&mut self.rest)?),
            1 => Value::Fixed64(self.take(8)?.get_u64_le()),
            2 => {
                let length = varint(&mut self.rest)?;
                let length = usize::try_from(length).map_err(|_| FieldError::Truncated)?;
                if self.is_beginning {
                    Value::Bytes(self.take(length.min(self.rest.len()))?)
                } else {
                    Value::Bytes(self.take(length)?)
                }
            }
            5 => Value::Fixed32(self.take(4)?.get_u32_le()),
            other => return Err(FieldError::WireType(other)),
        };
        let raw = whole.slice(..whole.len() - self.rest.len());
        Ok(Field { number, value, raw })
    }

    fn take(&mut self, length: usize) -> Result<Bytes, FieldError> {
        if self.rest.len() < length {
            return Err(FieldError::Truncated);
        }
        Ok(self.rest.split_to(length))
    }
}

impl Value {
    /// Returns the bytes of a length-delimited value.
    pub fn bytes(&self) -> Option<&Bytes> {
        match self {
            Self::Bytes(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Returns a length-delimited value as text, with invalid UTF-8 replaced.
    pub fn text(&self) -> Option<String> {
        self.bytes()
            .map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Returns the value of a varint.
    pub fn number(&self) -> Option<u64> {
        match self {
            Self::Varint(number) => Some(*number),
            _ => None,
        }
    }

    /// Returns a varint as a bool.
    pub fn flag(&self) -> Option<bool> {
        self.number().map(|number| number != 0)
    }
}

/// Appends a length-delimited field.
pub(super) fn put_bytes(out: &mut Vec<u8>, number: u32, value: &[u8]) {
    put_varint(out, u64::from(number) << 3 | 2);
    put_varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// Appends a varint.
pub(super) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push((value as u8) | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn varint(buffer: &mut Bytes) -> Result<u64, FieldError> {
    let mut value = 0_u64;
    for shift in (0..70).step_by(7) {
        if buffer.is_empty() {
            return Err(FieldError::Truncated);
        }
        let byte = buffer.get_u8();
        value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(FieldError::Varint)
}
