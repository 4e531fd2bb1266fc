//! The user's Cursor settings: rules, skills, MCP servers, hooks.
//!
//! They are read only from files, when a turn starts, and read again when one of the files or
//! folders changes. Nothing here writes to stdout or stderr; messages for the user are notices.
//! Commands of a project are run only if the user trusts it ([`sources::Trust`]) and has accepted
//! the current content of the files that name them ([`consent`]).

pub mod consent;
mod front_matter;
pub mod hooks;
mod jsonc;
mod library;
pub mod mcp;
pub mod rules;
mod scan;
pub mod skills;
pub mod sources;
mod survey;

use hooks::Hooks;
pub use library::Library;
use mcp::Servers;
use rules::Rule;
use skills::Skill;

/// The settings of a workspace as they were read.
#[derive(Debug, Default)]
pub struct Settings {
    /// Rules, the nearest first.
    pub rules: Vec<Rule>,
    /// Skills.
    pub skills: Vec<Skill>,
    /// Hooks.
    pub hooks: Hooks,
    /// MCP servers.
    pub servers: Servers,
    /// Notices for the user.
    pub notices: Vec<String>,
}
