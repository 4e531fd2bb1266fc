//! Commands for a user at a terminal.

use std::io::IsTerminal as _;

use serde_json::Value as Json;

use foundation::terminal_text::clean_json;

mod ask;
mod bundle;
mod doctor;
mod login;
mod markdown;
mod models;
mod schema;
mod trust;
mod usage;
mod waiting;

pub use ask::{AskCommand, AskCommandError};
pub use doctor::{DoctorCommand, DoctorError};
pub use login::{LoginCommand, LoginCommandError, LogoutCommand};
pub use models::{ModelsCommand, ModelsError};
pub use schema::SchemaCommand;
pub use trust::{TrustCommand, TrustError};
pub use usage::{UsageCommand, UsageError};

/// Returns a value to print: exact for a program, without control characters for a terminal.
fn for_stdout(mut value: Json) -> Json {
    if std::io::stdout().is_terminal() {
        clean_json(&mut value);
    }
    value
}
