//! Commands: the shell state of a session, foreground and background commands, and the rules that
//! decide which commands may run.

pub(crate) mod background_log;
pub(crate) mod captured_output;
pub(crate) mod command_line;
pub(crate) mod command_policy;
mod denylist;
pub(crate) mod foreground;
pub(crate) mod output;
pub(crate) mod output_tail;
pub(crate) mod pipes;
pub(crate) mod process_group;
pub mod reaper;
pub(crate) mod session;
pub(crate) mod state;
mod temp_dir;

pub use captured_output::CapturedOutput;
pub use process_group::remove_secrets;
pub use session::ShellSession;
