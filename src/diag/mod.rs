//! What helps a person find out what is going on, and settings. Used by every room, uses none.

pub mod parse;
pub mod place;
pub mod settings;
