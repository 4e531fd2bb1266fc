//! Commands for a person at a terminal.

mod ask;
mod models;

pub use ask::{Ask, AskError};
pub use models::{Models, ModelsError};
