//! Connect's error codes.

/// The sixteen codes of Connect and gRPC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Code {
    Canceled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    NotFound,
    AlreadyExists,
    PermissionDenied,
    ResourceExhausted,
    FailedPrecondition,
    Aborted,
    OutOfRange,
    Unimplemented,
    Internal,
    Unavailable,
    DataLoss,
    Unauthenticated,
}

/// In the order of their gRPC numbers, 1 to 16.
const NAMES: [(Code, &str); 16] = [
    (Code::Canceled, "canceled"),
    (Code::Unknown, "unknown"),
    (Code::InvalidArgument, "invalid_argument"),
    (Code::DeadlineExceeded, "deadline_exceeded"),
    (Code::NotFound, "not_found"),
    (Code::AlreadyExists, "already_exists"),
    (Code::PermissionDenied, "permission_denied"),
    (Code::ResourceExhausted, "resource_exhausted"),
    (Code::FailedPrecondition, "failed_precondition"),
    (Code::Aborted, "aborted"),
    (Code::OutOfRange, "out_of_range"),
    (Code::Unimplemented, "unimplemented"),
    (Code::Internal, "internal"),
    (Code::Unavailable, "unavailable"),
    (Code::DataLoss, "data_loss"),
    (Code::Unauthenticated, "unauthenticated"),
];

impl Code {
    /// Returns the code's name on the wire.
    pub fn name(self) -> &'static str {
        NAMES
            .iter()
            .find_map(|(code, name)| (*code == self).then_some(*name))
            .unwrap_or("unknown")
    }

    /// Returns the code of a name; `None` for an unknown name.
    pub fn named(name: &str) -> Option<Self> {
        NAMES
            .iter()
            .find_map(|(code, known)| (*known == name).then_some(*code))
    }

    /// Parses a name; an undefined name becomes `unknown`, as Connect requires.
    pub fn from_name(name: &str) -> Self {
        Self::named(name).unwrap_or(Self::Unknown)
    }

    /// Returns all names.
    pub fn names() -> impl Iterator<Item = &'static str> {
        NAMES.iter().map(|(_, name)| *name)
    }

    /// Returns the HTTP status of a unary error with this code.
    pub fn http_status(self) -> u16 {
        match self {
            Self::Canceled => 499,
            Self::InvalidArgument | Self::FailedPrecondition | Self::OutOfRange => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound | Self::Unimplemented => 404,
            Self::AlreadyExists | Self::Aborted => 409,
            Self::ResourceExhausted => 429,
            Self::Unknown | Self::Internal | Self::DataLoss => 500,
            Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }

    /// Returns the code for the number in a `grpc-status` header.
    pub fn from_grpc(number: u32) -> Option<Self> {
        let index = usize::try_from(number).ok()?.checked_sub(1)?;
        NAMES.get(index).map(|(code, _)| *code)
    }

    /// Returns the code for an HTTP status without a readable error body.
    pub fn from_http(status: u16) -> Self {
        match status {
            400 => Self::Internal,
            401 => Self::Unauthenticated,
            403 => Self::PermissionDenied,
            404 => Self::Unimplemented,
            429 | 502 | 503 | 504 => Self::Unavailable,
            _ => Self::Unknown,
        }
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}
