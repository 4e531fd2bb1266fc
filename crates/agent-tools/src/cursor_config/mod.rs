//! The user's Cursor settings: rules, skills, MCP servers, hooks.
//!
//! They are read only from files, when a turn starts, and read again when one of the files or
//! folders changes. Nothing here writes to stdout or stderr; messages for the user are notices.
//! Commands of a project are run only if the user trusts it ([`sources::Trust`]) and has accepted
//! the current content of the files that name them ([`consent`]).

mod cache;
pub mod consent;
mod file_stamps;
mod front_matter;
pub mod hooks;
mod jsonc;
pub mod mcp;
pub mod rules;
mod scan;
pub mod skills;
pub mod sources;

pub use cache::ConfigCache;
use hooks::Hooks;
use mcp::McpServers;
use rules::RuleFile;
use skills::Skill;

/// The settings of a workspace as they were read.
#[derive(Debug, Default)]
pub struct CursorConfig {
    /// Rules, the nearest first.
    pub rules: Vec<RuleFile>,
    /// Skills.
    pub skills: Vec<Skill>,
    /// Hooks.
    pub hooks: Hooks,
    /// MCP servers.
    pub servers: McpServers,
    /// Notices for the user.
    pub notices: Vec<String>,
    /// Whether a large workspace was not yet searched for nested rules and skills.
    pub is_partial: bool,
}
