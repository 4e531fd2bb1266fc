//! Commands for a person at a terminal.

mod ask;
mod doctor;
mod login;
mod models;
mod schema;
mod trust;

pub use ask::{Ask, AskError};
pub use doctor::{Doctor, DoctorError};
pub use login::{Login, LoginCommandError, Logout};
pub use models::{Models, ModelsError};
pub use schema::{Schema, SchemaError, Verdict};
pub use trust::{Trust, TrustError};
