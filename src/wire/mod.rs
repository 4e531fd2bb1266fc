//! Cursor on the wire: envelopes, HTTP/2 and HTTP/1.1 transports, headers, endpoints and
//! the meaning of errors.
//!
//! This room holds no policy and no conversation: it moves messages and says exactly what
//! went wrong. It knows nothing of hosts such as pi.

pub mod envelope;
pub mod proto;
