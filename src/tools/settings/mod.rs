//! The user's Cursor settings: rules, skills, MCP servers, hooks.
//!
//! Read from files only, when a turn begins, and read again when one of the files or folders
//! looks different. Nothing here writes to stdout or stderr; what a person should know is a
//! notice. Commands a project names are run only if the user trusts it ([`sources::Trust`]) and
//! has accepted the present content of the files that name them ([`consent`]).

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

/// The settings of a workspace, as they were read.
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
    /// What a person should know.
    pub notices: Vec<String>,
}
