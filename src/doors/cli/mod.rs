//! Commands for a person at a terminal.

mod ask;
mod doctor;

pub use ask::{Ask, AskError};
pub use doctor::{Doctor, DoctorError};
