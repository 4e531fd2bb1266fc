//! Commands for a person at a terminal.

mod ask;
mod doctor;
mod models;

pub use ask::{Ask, AskError};
pub use doctor::{Doctor, DoctorError};
pub use models::{Models, ModelsError};
