//! What must survive: the state of a conversation and what it was made of.
//!
//! So far the planning half: does a host's history continue the one we sent
//! ([`fingerprint`]), what is to be sent ([`plan`]), and how a history Cursor has not seen is
//! told ([`history`]). This room plans; it opens no stream and knows no host's wire format.

pub mod continuation;
pub mod fingerprint;
pub mod history;
pub mod journal;
pub mod message;
pub mod picture;
pub mod plan;
pub mod shelf;
pub mod store;
pub mod transcript;
