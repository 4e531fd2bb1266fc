//! The request context: what is reported to the server about the machine and the workspace.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::cursor_config::skills::Skill;
use crate::cursor_config::{self, CursorConfig};
use crate::prompts;
use crate::tool_definition::ToolDefinition;
use crate::workspace::git::Repositories;
use crate::workspace::repository_cache::{RepositoryCache, report_incomplete};
use cursor_proto::agent::v1::*;
use cursor_proto::protobuf_value;

/// The data from which a run's context is built.
#[derive(Debug, Clone, Default)]
pub struct RunContext {
    /// The folder the agent works in.
    pub workspace: PathBuf,
    /// The user's home directory.
    pub home: Option<PathBuf>,
    /// The user's shell (`SHELL`).
    pub shell: Option<PathBuf>,
    /// The host's tools.
    pub offers: Vec<ToolDefinition>,
    /// Instructions that always apply: Cursor builds its system prompt from rules and
    /// discards system messages of clients.
    pub rules: Vec<Instruction>,
    /// The user's Cursor settings for the workspace.
    pub settings: Arc<CursorConfig>,
    /// What git reports about the workspace.
    pub repositories: Arc<RepositoryCache>,
    /// The folder for the output of background commands, if they are enabled.
    pub terminals: Option<PathBuf>,
}

/// One instruction that always applies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instruction {
    /// A path-like name, shown beside the rule.
    pub name: String,
    /// The instruction itself.
    pub content: String,
}

/// Returns the answer to the server's request for the context.
pub(super) async fn reply(facts: &RunContext) -> RequestContextResult {
    let repositories = facts.repositories.latest(&facts.workspace).await;
    if facts.settings.is_partial {
        report_incomplete("nested rules and skills are not read yet");
    }
    let context = request_context(facts, &repositories);
    RequestContextResult {
        result: Some(request_context_result::Result::Success(
            RequestContextSuccess {
                request_context: Some(context),
                served_from_disk_cache: None,
            },
        )),
    }
}

/// Builds the context of a run.
fn request_context(facts: &RunContext, repositories: &Repositories) -> RequestContext {
    let known = facts.settings.servers.states(&|_| true);
    let mut offers = facts.offers.clone();
    offers.extend(facts.settings.servers.offers(offers.len()));
    let descriptors = descriptors(&offers, &known);
    RequestContext {
        rules: rules(facts),
        env: Some(RequestContextEnv {
            os_version: os_version(),
            workspace_paths: vec![facts.workspace.to_string_lossy().into_owned()],
            shell: shell_name(facts.shell.as_deref()),
            time_zone: iana_time_zone::get_timezone().unwrap_or_else(|_| "UTC".into()),
            sandbox_supported: Some(false),
            computer_use_supported: Some(false),
            is_working_dir_home_dir: Some(facts.home.as_ref() == Some(&facts.workspace)),
            process_working_directory: std::env::current_dir()
                .ok()
                .map(|folder| folder.to_string_lossy().into_owned()),
            smart_mode_classifier_auto_mode_enabled: Some(false),
            terminals_folder: facts
                .terminals
                .as_ref()
                .map(|folder| folder.to_string_lossy().into_owned())
                .unwrap_or_default(),
            ..RequestContextEnv::default()
        }),
        git_repos: repositories.found.clone(),
        git_repo_info_complete: Some(repositories.complete),
        mcp_meta_tool_options: (!descriptors.is_empty()).then_some(McpMetaToolOptions {
            enabled: false,
            mcp_descriptors: descriptors,
        }),
        mcp_instructions: known
            .iter()
            .flat_map(|server| server.instructions.clone())
            .collect(),
        tools: offers.iter().map(ToolDefinition::definition).collect(),
        supports_mcp_auth: Some(false),
        hooks_config: (!facts.settings.hooks.is_empty()).then(|| HooksConfigInfo {
            configured_steps: facts
                .settings
                .hooks
                .events()
                .into_iter()
                .map(|event| event.name().to_owned())
                .collect(),
        }),
        agent_skills: facts
            .settings
            .skills
            .iter()
            .filter_map(Skill::proto)
            .collect(),
        ..RequestContext::default()
    }
}

/// Groups the tools by server, and adds the state of servers that are not connected. This is not
/// a catalogue for lookups: the model gets the tools themselves.
fn descriptors(offers: &[ToolDefinition], known: &[McpStateServer]) -> Vec<McpDescriptor> {
    let mut descriptors: Vec<McpDescriptor> = Vec::new();
    for offer in offers {
        let tool = McpToolDescriptor {
            tool_name: offer.tool.clone(),
            description: Some(offer.description.clone()),
            input_schema: Some(protobuf_value::encode(&offer.schema)),
            ..McpToolDescriptor::default()
        };
        match descriptors
            .iter_mut()
            .find(|server| server.server_identifier == offer.provider)
        {
            Some(server) => server.tools.push(tool),
            None => descriptors.push(McpDescriptor {
                server_name: offer.provider.clone(),
                server_identifier: offer.provider.clone(),
                tools: vec![tool],
                ..McpDescriptor::default()
            }),
        }
    }
    for server in known {
        let own = |descriptor: &&mut McpDescriptor| {
            descriptor.server_identifier == server.server_identifier
        };
        let missing = server.error_message.as_ref();
        let notice = missing.map(|why| prompts::tools::mcp_not_connected(why));
        let instructions =
            notice.or_else(|| Some(server.instructions.first()?.instructions.clone()));
        match descriptors.iter_mut().find(own) {
            Some(descriptor) => descriptor.server_use_instructions = instructions,
            None => descriptors.push(McpDescriptor {
                server_name: server.server_name.clone(),
                server_identifier: server.server_identifier.clone(),
                server_use_instructions: instructions,
                ..McpDescriptor::default()
            }),
        }
    }
    descriptors
}

/// Returns the host's rules, then rules of files that the host's rules do not already include,
/// then skills.
fn rules(facts: &RunContext) -> Vec<CursorRule> {
    let settings = &facts.settings;
    let is_included = |content: &cursor_config::rules::RuleFile| {
        let includes = |rule: &Instruction| content.is_included_in(&rule.content);
        facts.rules.iter().any(includes)
    };
    let files = settings.rules.iter().filter(|rule| !is_included(rule));
    let skills = settings.skills.iter().map(Skill::as_rule);
    facts
        .rules
        .iter()
        .map(rule)
        .chain(
            files
                .chain(skills)
                .map(cursor_config::rules::RuleFile::proto),
        )
        .collect()
}

fn rule(rule: &Instruction) -> CursorRule {
    CursorRule {
        full_path: rule.name.clone(),
        content: rule.content.clone(),
        r#type: Some(CursorRuleType {
            r#type: Some(cursor_rule_type::Type::Global(CursorRuleTypeGlobal {})),
        }),
        source: CursorRuleSource::User as i32,
        ..CursorRule::default()
    }
}

/// Returns kernel name and release in Node's format, like the official client.
fn os_version() -> String {
    let name = match std::env::consts::OS {
        "macos" => "darwin",
        "windows" => "win32",
        other => other,
    };
    format!("{name} {}", kernel_release())
}

#[cfg(unix)]
fn kernel_release() -> String {
    let system = rustix::system::uname();
    system.release().to_string_lossy().into_owned()
}

/// Returns the release that all supported versions of Windows have in common; no safe call returns
/// the build number.
#[cfg(windows)]
fn kernel_release() -> String {
    "10.0".into()
}

/// Returns the name of the user's shell without its folder.
fn shell_name(shell: Option<&Path>) -> String {
    shell
        .and_then(|path| Some(path.file_name()?.to_str()?.to_owned()))
        .unwrap_or_else(|| "bash".into())
}
