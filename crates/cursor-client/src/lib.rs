//! Client for Cursor's API: HTTP/2 and HTTP/1.1 transports, headers, endpoints, the
//! classification of errors, and the user's account.
//!
//! This crate contains no policy and no conversation state: it transports messages and reports
//! exactly what failed. It does not depend on hosts such as pi.

pub mod account;
mod append;
pub mod awake;
pub mod checksum;
pub mod choice;
pub mod endpoint;
pub mod error;
pub mod failure;
pub mod headers;
pub mod http;
mod lane;
mod options;
pub mod remote;
pub mod stream;
mod trust;
pub mod unary;

pub use options::ClientOptions;
