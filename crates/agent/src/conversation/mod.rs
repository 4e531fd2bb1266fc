//! The persistent state of a conversation, and the plans made from it.
//!
//! * [`fingerprint`] and [`answer_diff`]: whether a host's history and its last answer continue ours
//! * [`send_plan`]: what to send
//! * [`bootstrap`]: how to build a state from a history Cursor has not seen
//! * [`recovery`]: how to restart a turn whose run was lost
//! * [`journal`], [`store`]: how all of it is stored
//!
//! This module only plans and stores: it opens no stream and knows no host's wire format.

pub mod answer_diff;
pub mod blob_store;
pub mod bootstrap;
pub mod fingerprint;
pub mod flat_message;
pub mod image;
pub mod journal;
pub mod lost_turn;
pub mod recovery;
pub mod result_envelope;
pub mod send_plan;
pub mod store;
pub mod tool_results;
pub mod transcript;
