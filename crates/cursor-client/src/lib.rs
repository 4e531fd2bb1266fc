//! Client for Cursor's API: HTTP/2 and HTTP/1.1 transports, headers, endpoints, the
//! classification of errors, and the user's account.
//!
//! This crate contains no policy and no conversation state: it transports messages and reports
//! exactly what failed. It does not depend on hosts such as pi.

pub mod account;
mod bidi_append;
pub mod checksum;
pub mod connect_error;
mod connection_pool;
mod connector;
pub mod endpoint;
pub mod error;
pub mod failure;
pub mod headers;
pub mod http_clients;
pub mod http_version;
mod options;
pub mod stream;
pub mod suspend_aware_timer;
mod tls;
pub mod unary;

pub use options::ClientOptions;
