//! Cursor's protocol: envelopes, HTTP/2 and HTTP/1.1 transports, headers, endpoints and the
//! classification of errors.
//!
//! This module contains no policy and no conversation state: it transports messages and reports
//! exactly what failed. It does not depend on hosts such as pi.

mod append;
pub mod ascending;
pub mod available_models;
pub mod awake;
pub mod checksum;
pub mod choice;
pub mod code;
pub mod drift;
pub mod endpoint;
pub mod envelope;
pub mod error;
pub mod failure;
pub mod fields;
pub mod headers;
pub mod http;
mod lane;
pub mod listing;
pub mod proto;
pub mod readable;
pub mod remote;
pub mod state;
pub mod stream;
mod trust;
pub mod unary;
pub mod value;
