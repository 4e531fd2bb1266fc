//! `session/command`: executes a user's commands and returns what the host shows.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use super::error::NO_KEY;
use super::methods::{Context, report};
use super::models::ListFreshness;
use super::protocol::*;
use super::session_usage;
use super::user_choices::{self, UserChoices};
use crate::checkup::{self, Severity};
use crate::reachability;
use crate::usage_report;
use agent::catalog::{HostModels, ListSource, ModelList, ResolvedSpeed, Speed, SpeedSource};
use agent::turn::{Policy, Surface};
use agent_tools::bridge::tool_set::{BuiltinTools, HostTool};
use agent_tools::host_delegate::HostToolSet;
use agent_tools::policy::{DenialReason, NativeTool, ToolDecision, ToolDecisions};
use cursor_client::account::CredentialSource;

const REFRESH: &str = "cursor-refresh-models";
const DOCTOR: &str = "cursor-doctor";
const FAST: &str = "cursor-fast";
const MODE: &str = "cursor-mode";
const TOOLS: &str = "cursor-tools";
const TRUST: &str = "cursor-trust";
const USAGE: &str = "cursor-usage";

/// Returns the commands a host should register.
pub(super) fn specs() -> Vec<SlashCommand> {
    let word = |(value, description): &(&str, &str)| CommandArgument {
        value: (*value).into(),
        label: (*value).into(),
        description: (*description).into(),
    };
    let offer = |name: &str, description: &str, words: &[(&str, &str)]| SlashCommand {
        name: name.into(),
        description: description.into(),
        arguments: words.iter().map(word).collect(),
    };
    vec![
        offer(REFRESH, "Refresh the list of Cursor models", &[]),
        offer(
            FAST,
            "Turn fast mode of the selected Cursor model on or off",
            &[("on", "Faster, at a higher price"), ("off", "Normal speed")],
        ),
        offer(
            MODE,
            "Set the mode of Cursor's agent for this session",
            &[
                ("agent", "Carries out the request"),
                ("plan", "Reads and plans, changes nothing"),
            ],
        ),
        offer(TOOLS, "Show what Cursor's agent can call now", &[]),
        offer(
            TRUST,
            "Accept the MCP servers and hooks of this project's Cursor settings as they are now",
            &[],
        ),
        offer(
            USAGE,
            "Show the plan of your Cursor account, its usage, and the tokens of this session",
            &[],
        ),
        offer(
            DOCTOR,
            "Show the Cursor sidecar's settings, warnings and protocol drift",
            &[],
        ),
    ]
}

/// Notices that were shown already, because each is shown once.
#[derive(Default)]
pub(super) struct ShownNotices(Mutex<BTreeSet<String>>);

impl ShownNotices {
    /// Returns whether a notice is new.
    fn first(&self, notice: &str) -> bool {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.insert(notice.to_owned())
    }
}

/// A text for the user.
type Notice = (String, LogLevel);

fn info(text: impl Into<String>) -> Notice {
    (text.into(), LogLevel::Info)
}

fn warning(text: impl Into<String>) -> Notice {
    (text.into(), LogLevel::Warning)
}

fn error(text: impl Into<String>) -> Notice {
    (text.into(), LogLevel::Error)
}

/// Executes a command and returns the resulting state.
pub(super) async fn run(context: &Context, params: SessionCommandParams) -> SessionCommandResult {
    let newness = match params.command.as_deref() {
        Some(REFRESH) => ListFreshness::Live,
        _ => ListFreshness::Current,
    };
    let mut listing = context.listing(params.api_key.as_deref(), newness).await;
    let before = UserChoices::read(&params.kept);
    let mut command = CommandContext {
        context,
        rows: context.models.host_models(&mut listing),
        choices: before.clone(),
        params: &params,
    };
    let notice = match params.command.as_deref() {
        None => command.notices(&listing),
        Some(REFRESH) => Some(command.refreshed(&listing)),
        Some(DOCTOR) => Some(info(described(context).await)),
        Some(FAST) => Some(command.fast()),
        Some(MODE) => Some(command.mode()),
        Some(TOOLS) => Some(info(command.tools().await)),
        Some(TRUST) => Some(command.trust()),
        Some(USAGE) => Some(command.usage().await),
        Some(unknown) => Some(error(format!(
            "cursor-sidecar has no command {unknown}; install matching versions"
        ))),
    };
    let (message, level) = notice.unzip();
    SessionCommandResult {
        message,
        level,
        status: command.status(),
        entry: (command.choices != before).then(|| command.choices.entry()),
        models: context.models.changed_models(&command.rows),
    }
}

/// The context of a command: the user's model, choices and parameters.
struct CommandContext<'a> {
    context: &'a Context,
    params: &'a SessionCommandParams,
    rows: HostModels,
    choices: UserChoices,
}

impl CommandContext<'_> {
    /// Returns the base id and speed of the selected model, if it is a Cursor model with a choice.
    fn speed(&self) -> Option<(String, ResolvedSpeed)> {
        let found = self.rows.find(self.params.model.as_deref()?).ok()?;
        let decided = self
            .context
            .models
            .resolve_speed(&found, &self.choices.wishes)?;
        Some((found.model.base_id().to_owned(), decided))
    }

    /// Returns why the selected model is never fast.
    fn never_fast(&self) -> String {
        let Some(model) = self.params.model.as_deref() else {
            return "The chosen model is not one of Cursor's".into();
        };
        let Ok(found) = self.rows.find(model) else {
            return format!("Fast mode not supported by {model}");
        };
        let row = found.model;
        if row.base.parameter("fast").is_some() {
            // The model has it, this context size does not.
            return format!("Fast mode not supported by {}", row.id);
        }
        format!("Fast mode not supported by {}", row.base_id())
    }

    /// Returns the status line for a Cursor model, which shows only deviations from the default.
    fn status(&self) -> Option<String> {
        self.params.model.as_ref()?;
        let fast = self.speed().is_some_and(|(_, now)| now.speed.is_fast());
        let plan = self.choices.mode() == Ok(TurnMode::Plan);
        let parts: Vec<&str> = [(fast, "fast"), (plan, "plan")]
            .into_iter()
            .filter_map(|(on, name)| on.then_some(name))
            .collect();
        (!parts.is_empty()).then(|| format!("cursor {}", parts.join(" · ")))
    }

    /// Returns notices that were not shown yet: why the list of models is not Cursor's own, which
    /// settings are not understood, that the selected model is gone, that a flag has no effect.
    fn notices(&self, listing: &ModelList) -> Option<Notice> {
        let model = self.params.model.as_deref()?;
        let mut all: Vec<Notice> = listing.warnings.iter().map(warning).collect();
        let settings = self.context.turns.take_setting_warnings();
        all.extend(settings.into_iter().map(warning));
        all.extend(self.vanished(model, listing).map(warning));
        let mode = self.choices.mode().err();
        all.extend(mode.map(|unknown| error(unknown.to_string())));
        if self.choices.wishes.run == Some(Speed::Fast) && self.speed().is_none() {
            all.push(info(self.never_fast()));
        }
        all.retain(|(text, _)| self.context.shown_notices.first(text));
        let texts: Vec<&str> = all.iter().map(|(text, _)| text.as_str()).collect();
        let worst = all.iter().map(|(_, level)| *level).max()?;
        Some((texts.join("\n"), worst))
    }

    /// Returns a notice if Cursor's own list lacks the selected model; the bundled list may be too
    /// old to decide.
    fn vanished(&self, model: &str, listing: &ModelList) -> Option<String> {
        let own = listing.source != ListSource::Bundled;
        let unknown = self.rows.find(model).err().filter(|_| own)?;
        Some(unknown.to_string())
    }

    fn refreshed(&self, listing: &ModelList) -> Notice {
        let (source, count) = (ModelsSource::from(listing.source), self.rows.len());
        let source = match source {
            ModelsSource::Live => "live",
            ModelsSource::Cache => "cache",
            ModelsSource::Bundled => "bundled",
        };
        let reason = listing.reason.map(|reason| format!(": {}", reason.name()));
        let models = if count == 1 { "model" } else { "models" };
        let mut lines = vec![format!(
            "{count} Cursor {models} ({source}{})",
            reason.unwrap_or_default()
        )];
        lines.extend(listing.warnings.iter().cloned());
        let model = self.params.model.as_deref();
        let gone = model.filter(|model| self.vanished(model, listing).is_some());
        let well = listing.source == ListSource::Live && gone.is_none();
        lines.extend(
            gone.map(|model| format!("Cursor no longer has {model:?}; choose another with /model")),
        );
        if well {
            info(lines.join("\n"))
        } else {
            warning(lines.join("\n"))
        }
    }

    /// Saves first, because a failure must not be reported as success.
    fn fast(&mut self) -> Notice {
        let Some((base, now)) = self.speed() else {
            return info(self.never_fast());
        };
        if now.source == SpeedSource::Run {
            let flag = match now.speed {
                Speed::Fast => user_choices::FAST,
                Speed::Normal => user_choices::NO_FAST,
            };
            return info(format!("--{flag} decides for this run"));
        }
        let wanted = match self.params.arguments.trim() {
            "" => Speed::from_switch(!now.speed.is_fast()),
            word if word.eq_ignore_ascii_case("on") => Speed::Fast,
            word if word.eq_ignore_ascii_case("off") => Speed::Normal,
            other => return warning(format!("/{FAST} takes on, off or nothing, not {other:?}")),
        };
        let saved = self.context.models.set_speed(&PrefsSetParams {
            base: base.clone(),
            fast: Some(wanted.is_fast()),
        });
        if let Err(problem) = saved {
            return error(problem);
        }
        let state = if wanted.is_fast() { "on" } else { "off" };
        let notice = info(format!("Fast mode {state} for {base}"));
        self.choices.wishes.session.insert(base, wanted);
        notice
    }

    fn mode(&mut self) -> Notice {
        let now = match self.choices.mode() {
            Ok(now) => now.name(),
            Err(unknown) => return error(unknown.to_string()),
        };
        let wanted = self.params.arguments.trim();
        if wanted.is_empty() {
            return info(format!(
                "Cursor works in {now} mode; /{MODE} agent or /{MODE} plan changes it"
            ));
        }
        let Some(wanted) = TurnMode::parse(wanted) else {
            return warning(format!("/{MODE} takes agent or plan, not {wanted:?}"));
        };
        if self.choices.mode_is_forced() {
            return info(format!("--{} decides for this run", user_choices::MODE));
        }
        self.choices.choose_mode(wanted);
        info(format!(
            "Cursor works in {} mode from the next turn on",
            wanted.name()
        ))
    }

    /// Accepts the commands that the project's settings define.
    fn trust(&self) -> Notice {
        match self.context.turns.library().accept(&self.workspace()) {
            Ok(accepted) => info(accepted),
            Err(problem) => error(problem.to_string()),
        }
    }

    /// Returns the account's plan and the tokens of the session.
    async fn usage(&self) -> Notice {
        let turns = &self.context.turns;
        let session = self.params.session_id.as_deref();
        let tokens = session
            .and_then(|session| turns.session_usage(session))
            .and_then(session_usage::describe);
        let tokens = tokens.unwrap_or_else(|| "This session: no usage reported yet".into());
        let (_, backend) = match turns.backend(self.params.api_key.as_deref()) {
            Ok(found) => found,
            Err(problem) => return error(problem),
        };
        let dashboard = backend.dashboard();
        let (profile, plan) = tokio::join!(
            dashboard.user(&backend.account),
            dashboard.plan(&backend.account)
        );
        match plan {
            Ok(plan) => {
                // The profile is informational.
                let profile = profile.unwrap_or_default();
                let mut lines = usage_report::lines(&profile, &plan, SystemTime::now());
                lines.push(tokens);
                info(lines.join("\n"))
            }
            Err(problem) => warning(format!("{tokens}\nThe plan is not known: {problem}")),
        }
    }

    /// Returns the session's working directory.
    fn workspace(&self) -> PathBuf {
        let workspace = self.params.workspace.as_ref().map(PathBuf::from);
        workspace.unwrap_or_else(|| self.context.cwd())
    }

    /// Lists what Cursor's agent can call: native tools, host tools and tools of MCP servers.
    async fn tools(&self) -> String {
        let policy = self.context.turns.policy();
        let mut lines = self.own_tools(policy);
        let mut count = 0;
        if policy.offers_tools {
            lines.extend(self.host_tools(policy, &mut count));
        } else {
            lines.push(format!(
                "Tools of {} are off (PI_CURSOR_PI_TOOL_BRIDGE)",
                self.host()
            ));
        }
        let library = self.context.turns.library();
        let settings = library.open(&policy.cursor, &self.workspace()).await;
        let mut by_server: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for offer in settings.servers.offers(count) {
            by_server
                .entry(offer.provider)
                .or_default()
                .push(offer.tool);
        }
        lines.extend(
            by_server.into_iter().map(|(server, tools)| {
                format!("Tools of MCP server {server}: {}", tools.join(", "))
            }),
        );
        lines.extend(settings.servers.problems(count));
        lines.join("\n")
    }

    fn host(&self) -> &str {
        self.context.host.get().map_or("the host", String::as_str)
    }

    /// Returns who executes native tools, and why the others are not executed.
    fn own_tools(&self, policy: &Policy) -> Vec<String> {
        let active = HostToolSet::named(self.params.tools.iter().map(String::as_str));
        let plan_mode = self.choices.mode().is_ok_and(|mode| mode == TurnMode::Plan);
        let stated = self.context.native_tools();
        let decisions = ToolDecisions::new(&policy.native, &stated, &active, plan_mode);
        let host = self.host();
        let native = "Cursor's native tools, executed by";
        let groups = [
            (ToolDecision::Local, format!("{native} cursor-sidecar")),
            (
                ToolDecision::Ask,
                format!("{native} cursor-sidecar after asking {host}"),
            ),
            (ToolDecision::Host, format!("{native} {host}")),
            (
                ToolDecision::Refuse(DenialReason::NoHostTool),
                format!("Not executed, because {host} has no tool for it"),
            ),
            (
                ToolDecision::Refuse(DenialReason::SwitchedOff),
                format!("Not executed, because it is switched off in {host}"),
            ),
            (
                ToolDecision::Refuse(DenialReason::PlanMode),
                "Off in plan mode".to_owned(),
            ),
            (
                ToolDecision::Refuse(DenialReason::Host),
                format!("Off in {host}"),
            ),
            (
                ToolDecision::Refuse(DenialReason::Settings),
                "Off (PI_CURSOR_NATIVE_TOOLS)".to_owned(),
            ),
            (
                ToolDecision::Refuse(DenialReason::Denied),
                "Denied (PI_CURSOR_NATIVE_TOOLS_DENY)".to_owned(),
            ),
        ];
        let line = |(decision, title): &(ToolDecision, String)| {
            let tools = NativeTool::ALL.iter().map(|(_, tool)| *tool);
            let names = tools.filter(|tool| decisions.of(*tool) == *decision);
            let names: Vec<&str> = names.map(NativeTool::name).collect();
            (!names.is_empty()).then(|| format!("{title}: {}", names.join(", ")))
        };
        groups.iter().filter_map(line).collect()
    }

    fn host_tools(&self, policy: &Policy, count: &mut usize) -> Vec<String> {
        let host = self.host();
        let tool = |name: &String| HostTool {
            name: name.clone(),
            description: String::new(),
            parameters: serde_json::Value::Null,
            origin: serde_json::Value::Null,
        };
        let tools: Vec<HostTool> = self.params.tools.iter().map(tool).collect();
        let surface = Surface::Cards(self.params.tools.clone());
        let offered = policy.offered(&tools, &surface);
        *count = offered.tools.len();
        let (names, hosts): (Vec<&str>, Vec<&str>) = offered
            .tools
            .iter()
            .map(|tool| (tool.offered.as_str(), tool.host.as_str()))
            .unzip();
        let mut lines = vec![if names.is_empty() {
            format!("Tools of {host}: none")
        } else {
            format!("Tools of {host}, executed by it: {}", names.join(", "))
        }];
        let frank = Policy {
            overlapping: BuiltinTools::Offered,
            ..policy.clone()
        };
        let all = frank.offered(&tools, &surface).tools.into_iter();
        let hidden = all
            .map(|tool| tool.host)
            .filter(|name| !hosts.contains(&name.as_str()));
        let hidden: Vec<String> = hidden.collect();
        if !hidden.is_empty() {
            let hidden = hidden.join(", ");
            lines.push(format!("Not offered, since Cursor has its own: {hidden}"));
        }
        lines
    }
}

/// Returns the findings of the checks, the settings that were changed, and drift of the protocol.
async fn described(context: &Context) -> String {
    let host_key = context
        .turns
        .has_host_key()
        .then_some(CredentialSource::Host);
    let mut findings = checkup::check(&context.config, host_key, NO_KEY);
    findings.extend(reachability::check(&context.config).await);
    let mut lines: Vec<String> = findings
        .into_iter()
        .map(|finding| match finding.severity {
            Severity::Ok => format!("✓ {}", finding.text),
            Severity::Warning => format!("! {}", finding.text),
            Severity::Problem => format!("✘ {}", finding.text),
        })
        .collect();
    let report = report(context);
    let set = |setting: &&EffectiveSetting| setting.source != SettingSource::Default;
    let settings = report.settings.iter().filter(set);
    lines.extend(settings.map(|setting| format!("{} = {}", setting.name, setting.value)));
    let counters = report.counters.iter();
    lines.extend(counters.filter_map(|(name, count)| {
        let part = name.strip_prefix("context.incomplete{part=\"")?;
        let part = part.trim_end_matches("\"}");
        Some(format!(
            "! sent to Cursor without waiting: {part} ({count} times)"
        ))
    }));
    let drift = report.wire_drift.iter();
    lines.extend(drift.map(|(what, count)| format!("unknown to us: {what} ({count} times)")));
    lines.join("\n")
}
