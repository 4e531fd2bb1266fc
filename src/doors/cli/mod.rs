//! Commands for a person at a terminal.

mod ask;

pub use ask::{Ask, AskError};
