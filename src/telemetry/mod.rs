//! The debug log and its timeline, and the report of a panic.

pub mod logfile;
pub mod panics;
pub mod record;
pub mod timeline;
