//! What must survive: the state of a conversation and what it was made of.
//!
//! So far the fingerprint that tells whether a host's history continues the one we sent.
//! This room plans; it opens no stream and knows no host's wire format.

pub mod fingerprint;
