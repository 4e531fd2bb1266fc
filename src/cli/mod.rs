//! Commands for a user at a terminal.

use std::io::IsTerminal as _;

use serde_json::Value as Json;

use foundation::terminal_text::clean_json;

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
pub use schema::Schema;
pub use trust::{Trust, TrustError};

/// Returns a value to print: exact for a program, without control characters for a terminal.
fn for_stdout(mut value: Json) -> Json {
    if std::io::stdout().is_terminal() {
        clean_json(&mut value);
    }
    value
}
