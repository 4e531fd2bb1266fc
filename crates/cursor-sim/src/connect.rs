//! Connect errors: codes, HTTP statuses, the JSON that ends a stream.

use serde_json::{Map, Value, json};

pub(super) use cursor_proto::connect_code::Code;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConnectError {
    pub(super) code: Code,
    pub(super) message: String,
    /// The details, each in Connect's JSON form.
    pub(super) details: Vec<Value>,
    /// Trailing metadata of the stream.
    pub(super) metadata: Box<Map<String, Value>>,
}

impl ConnectError {
    /// Creates an error without details.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Vec::new(),
            metadata: Box::default(),
        }
    }

    /// Returns the error object.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code.name(), "message": self.message });
        if !self.details.is_empty() {
            error["details"] = Value::Array(self.details.clone());
        }
        error
    }

    /// Returns the payload of an end-of-stream envelope.
    pub(super) fn end_of_stream(&self) -> Value {
        let mut end = json!({ "error": self.to_json() });
        if !self.metadata.is_empty() {
            end["metadata"] = Value::Object(*self.metadata.clone());
        }
        end
    }
}
