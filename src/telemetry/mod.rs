//! The debug log and its timeline, and the report of a panic.

pub mod debug_log;
pub mod log_file;
pub mod panic_hook;
pub mod timeline;
