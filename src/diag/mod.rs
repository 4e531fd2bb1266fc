//! What helps a person find out what is going on. Used by every room, uses none.

pub mod scrub;
pub mod settings;
