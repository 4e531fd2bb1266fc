//! The messages of our JSON-RPC protocol. `cursor-sidecar schema` prints their JSON Schema;
//! `schema/rpc` contains a checked-in copy.

mod account;
mod bridge;
mod message;
mod models;
mod session;
mod turn;

use std::collections::BTreeMap;

#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
#[cfg(test)]
use ts_rs::TS;

use agent_tools::permission::Permission;
use agent_tools::policy::{ExecutedBy, HostPolicy, NativeTool};

pub use account::*;
pub use bridge::*;
pub use message::*;
pub use models::*;
pub use session::*;
pub use turn::*;

/// Incremented when an old host would misunderstand a new sidecar, or the other way round.
pub const PROTOCOL_VERSION: u32 = 1;

/// `initialize`: required first, and only once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct InitializeParams {
    /// The protocol version of the host.
    pub protocol_version: u32,
    /// Facts about the host.
    pub host: HostInfo,
    /// What the host supports.
    #[serde(default)]
    pub capabilities: HostCapabilities,
    /// Who executes Cursor's native tools, unless a turn states otherwise. By default the sidecar
    /// executes none: the host's own tools execute what they can, and the rest is refused.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub native_tools: NativeTools,
}

/// Who executes Cursor's native tools, by kind. The user's settings may name another executor,
/// but what is `off` here stays off.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NativeTools {
    /// For kinds that are not stated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub default: Option<NativeMode>,
    /// Reading files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub read: Option<NativeMode>,
    /// Listing folders and finding files by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub ls: Option<NativeMode>,
    /// Searching in files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub grep: Option<NativeMode>,
    /// Writing and editing files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub write: Option<NativeMode>,
    /// Deleting files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub delete: Option<NativeMode>,
    /// Running commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub shell: Option<NativeMode>,
    /// Fetching web pages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub fetch: Option<NativeMode>,
    /// Reading changes from git.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub git_diff: Option<NativeMode>,
    /// Reading diagnostics of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub diagnostics: Option<NativeMode>,
    /// Whether a kind is executed only while the host offers a tool for the same work: `bash`
    /// for shell, `write` or `edit` for write and delete, `read`, `grep`, `find` or `ls`.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub require_host_tool: bool,
}

impl From<&NativeTools> for HostPolicy {
    fn from(stated: &NativeTools) -> Self {
        let kinds = [
            (NativeTool::Read, stated.read),
            (NativeTool::Ls, stated.ls),
            (NativeTool::Grep, stated.grep),
            (NativeTool::Write, stated.write),
            (NativeTool::Delete, stated.delete),
            (NativeTool::Shell, stated.shell),
            (NativeTool::Fetch, stated.fetch),
            (NativeTool::GitDiff, stated.git_diff),
            (NativeTool::Diagnostics, stated.diagnostics),
        ];
        let stated_kinds = kinds.into_iter();
        Self {
            default: stated.default.map(ExecutedBy::from),
            kinds: stated_kinds
                .filter_map(|(tool, mode)| Some((tool, mode?.into())))
                .collect(),
            requires_host_tool: stated.require_host_tool,
        }
    }
}

/// Who executes a native tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum NativeMode {
    /// The sidecar.
    Local,
    /// A tool of the host.
    Host,
    /// The sidecar, if the host allows it in answer to `permission/request`.
    Ask,
    /// Not executed: it is refused.
    Off,
}

impl From<NativeMode> for ExecutedBy {
    fn from(mode: NativeMode) -> Self {
        match mode {
            NativeMode::Local => ExecutedBy::Local,
            NativeMode::Host => ExecutedBy::Host,
            NativeMode::Ask => ExecutedBy::Ask,
            NativeMode::Off => ExecutedBy::Off,
        }
    }
}

/// `permission/request`, from the sidecar: may a native tool be executed? Sent in mode `ask`; an
/// error response denies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequestParams {
    /// The turn that asks.
    pub turn_id: String,
    /// The kind of tool, such as `shell`.
    pub tool: String,
    /// The command line, path or URL. Secrets are redacted.
    pub subject: String,
}

/// The answer to `permission/request`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct PermissionRequestResult {
    /// The user's decision.
    pub decision: PermissionDecision,
}

/// The user's decision about a native tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub enum PermissionDecision {
    /// Execute this once.
    AllowOnce,
    /// Execute this, and this kind of tool for the rest of the session.
    AllowSession,
    /// Do not execute it.
    Deny,
}

impl From<PermissionDecision> for Permission {
    fn from(decision: PermissionDecision) -> Self {
        match decision {
            PermissionDecision::AllowOnce => Permission::AllowOnce,
            PermissionDecision::AllowSession => Permission::AllowSession,
            PermissionDecision::Deny => Permission::Deny,
        }
    }
}

/// What a host supports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct HostCapabilities {
    /// When the host executes its tools.
    #[serde(default)]
    pub tools: HostToolTiming,
    /// Whether the host displays what a turn waits for.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub waiting: bool,
}

/// When a host executes its tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum HostToolTiming {
    /// Between turns: calls end a turn, and the next one contains the results.
    #[default]
    Between,
    /// During the turn: calls are sent as `tool/call` requests.
    Inline,
}

/// Facts about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HostInfo {
    /// Its name, such as `pi`.
    pub name: String,
    /// Its version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The file of its program. If `version` is absent, the version of the package that contains
    /// this file is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// How it runs.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub mode: HostMode,
    /// The thinking levels it supports, lowest first; pi's follow from its version.
    #[serde(default)]
    #[cfg_attr(test, ts(as = "Option<_>", optional))]
    pub thinking_levels: Vec<String>,
    /// Its working directory; the sidecar's if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// Its process id: the sidecar ends when that process does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process_id: Option<u32>,
}

/// How a host runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum HostMode {
    /// With a user interface.
    #[default]
    Interactive,
    /// It prints one answer.
    Print,
    /// A program reads its output.
    Json,
    /// A program controls it.
    Rpc,
}

/// The answer to `initialize`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct InitializeResult {
    /// `cursor-sidecar`.
    pub name: String,
    /// The version of the sidecar.
    pub version: String,
    /// The protocol version of the sidecar.
    pub protocol_version: u32,
    /// The methods of the sidecar.
    pub methods: Vec<String>,
    /// Whether a host that can show cards should do so; see `surface` of `turn/start`.
    pub cards: bool,
    /// Commands to register, for `session/command`.
    pub commands: Vec<SlashCommand>,
    /// Flags to register; their values are returned in `kept`.
    pub flags: Vec<FlagSpec>,
    /// The tool to register for questions to the user, unless it is turned off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(test, ts(optional))]
    pub question: Option<QuestionTool>,
}

/// `diagnostics/report`: no parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReportParams {}

/// The answer to `diagnostics/report`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// The version of the sidecar.
    pub version: String,
    /// Every setting with its effective value. For keys only whether they are set.
    pub settings: Vec<EffectiveSetting>,
    /// Warnings about invalid settings.
    pub warnings: Vec<String>,
    /// The endpoint for runs, or why there is none.
    pub endpoint: String,
    /// Unknown fields and messages from Cursor, with counts.
    pub wire_drift: BTreeMap<String, u64>,
    /// Recovered and lost turns and other events, counted by name and labels.
    pub counters: BTreeMap<String, u64>,
    /// Tasks that exist now; a number that only grows is a leak.
    pub tasks: usize,
}

/// One setting with its effective value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct EffectiveSetting {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Where the value comes from.
    pub source: SettingSource,
    /// What else was set, and why it is not used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remark: Option<String>,
}

/// Where a setting's value comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum SettingSource {
    /// Not set.
    Default,
    /// The environment.
    Environment,
    /// The configuration file.
    File,
}

/// `shutdown`: no parameters.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ShutdownParams {}

/// `log/message`, from the sidecar: a line for the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "camelCase")]
pub struct LogMessageParams {
    /// Its severity.
    pub level: LogLevel,
    /// The text.
    pub message: String,
}

/// The severity of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema, TS))]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// Information.
    Info,
    /// A problem that does not stop the work.
    Warning,
    /// A failure.
    Error,
}
