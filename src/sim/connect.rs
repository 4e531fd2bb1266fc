//! Connect's error vocabulary: codes, HTTP statuses, the JSON that ends a stream.

use serde_json::{Map, Value, json};

/// Connect's codes, as the JSON spells them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Code {
    /// The caller gave up.
    Canceled,
    /// Nobody knows.
    Unknown,
    /// The request makes no sense.
    InvalidArgument,
    /// Too late.
    DeadlineExceeded,
    /// No such thing.
    NotFound,
    /// Already there.
    AlreadyExists,
    /// Not allowed.
    PermissionDenied,
    /// Over a limit.
    ResourceExhausted,
    /// Not in the right state.
    FailedPrecondition,
    /// Lost a race.
    Aborted,
    /// Past the end.
    OutOfRange,
    /// No such method.
    Unimplemented,
    /// The server is broken.
    Internal,
    /// The server is away.
    Unavailable,
    /// Data is gone.
    DataLoss,
    /// Who are you?
    Unauthenticated,
}

/// Every code with its name and the HTTP status of a unary error.
const CODES: [(Code, &str, u16); 16] = [
    (Code::Canceled, "canceled", 499),
    (Code::Unknown, "unknown", 500),
    (Code::InvalidArgument, "invalid_argument", 400),
    (Code::DeadlineExceeded, "deadline_exceeded", 504),
    (Code::NotFound, "not_found", 404),
    (Code::AlreadyExists, "already_exists", 409),
    (Code::PermissionDenied, "permission_denied", 403),
    (Code::ResourceExhausted, "resource_exhausted", 429),
    (Code::FailedPrecondition, "failed_precondition", 400),
    (Code::Aborted, "aborted", 409),
    (Code::OutOfRange, "out_of_range", 400),
    (Code::Unimplemented, "unimplemented", 404),
    (Code::Internal, "internal", 500),
    (Code::Unavailable, "unavailable", 503),
    (Code::DataLoss, "data_loss", 500),
    (Code::Unauthenticated, "unauthenticated", 401),
];

impl Code {
    /// The code with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        CODES
            .iter()
            .find(|(_, known, _)| *known == name)
            .map(|(code, _, _)| *code)
    }

    /// All names, for messages to people.
    pub(super) fn names() -> impl Iterator<Item = &'static str> {
        CODES.iter().map(|(_, name, _)| *name)
    }

    /// The name on the wire.
    pub(super) fn name(self) -> &'static str {
        self.entry().1
    }

    /// The HTTP status of a unary error.
    pub(super) fn status(self) -> u16 {
        self.entry().2
    }

    fn entry(self) -> (Code, &'static str, u16) {
        CODES
            .into_iter()
            .find(|(code, _, _)| *code == self)
            .unwrap_or(CODES[1])
    }
}

/// A Connect error.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ConnectError {
    /// Its code.
    pub(super) code: Code,
    /// Its message.
    pub(super) message: String,
    /// Its details, each as Connect writes them in JSON.
    pub(super) details: Vec<Value>,
    /// Trailing metadata of the stream.
    pub(super) metadata: Box<Map<String, Value>>,
}

impl ConnectError {
    /// An error without details.
    pub(super) fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            details: Vec::new(),
            metadata: Box::default(),
        }
    }

    /// The error object.
    pub(super) fn to_json(&self) -> Value {
        let mut error = json!({ "code": self.code.name(), "message": self.message });
        if !self.details.is_empty() {
            error["details"] = Value::Array(self.details.clone());
        }
        error
    }

    /// The payload of an end-of-stream envelope.
    pub(super) fn end_of_stream(&self) -> Value {
        let mut end = json!({ "error": self.to_json() });
        if !self.metadata.is_empty() {
            end["metadata"] = Value::Object(*self.metadata.clone());
        }
        end
    }
}
