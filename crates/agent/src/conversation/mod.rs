//! The persistent state of a conversation, and the plans made from it.
//!
//! * [`fingerprint`] and [`answer`]: whether a host's history and its last answer continue ours
//! * [`plan`]: what to send
//! * [`history`]: how to build a state from a history Cursor has not seen
//! * [`recovery`]: how to restart a turn whose run was lost
//! * [`journal`], [`store`], [`begun`]: how all of it is stored
//!
//! This module only plans and stores: it opens no stream and knows no host's wire format.

pub mod answer;
pub mod begun;
pub mod comeback;
pub mod continuation;
pub mod fingerprint;
pub mod history;
pub mod journal;
pub mod message;
pub mod picture;
pub mod plan;
pub mod recovery;
pub mod shelf;
pub mod store;
pub mod transcript;
pub mod wrap;
