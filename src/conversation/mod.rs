//! What must survive: the state of a conversation and what it was made of.
//!
//! Does a host's history continue the one we sent ([`fingerprint`]) and its answer the one the
//! state knows ([`answer`]), what is to be sent ([`plan`]), how a history Cursor has not seen is told ([`history`]), how a turn comes back
//! whose run was lost ([`recovery`]), and how all of it is kept ([`journal`], [`store`], [`begun`]). This
//! room plans; it opens no stream and knows no host's wire format.

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
