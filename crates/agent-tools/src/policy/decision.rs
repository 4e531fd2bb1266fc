//! Who executes each of Cursor's native tools in one turn. Pure.
//!
//! Three inputs decide: the user's settings, the policy the host states, and which of the host's
//! tools are active. Each of them can deny a tool.

use std::collections::BTreeMap;

use super::{ExecutedBy, NativeTool, ToolPolicy};
use crate::host_delegate::HostToolSet;
use cursor_proto::tool_gates::ToolGates;

/// What a host states about native tools. A host that states nothing gets [`ExecutedBy::Host`] for
/// everything: its own tools execute, and what it has no tool for is refused.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostPolicy {
    /// For kinds without an entry of their own.
    pub default: Option<ExecutedBy>,
    /// By kind.
    pub kinds: BTreeMap<NativeTool, ExecutedBy>,
    /// Whether a kind is executed only while the host offers a tool for the same work, so that
    /// switching that tool off in the host switches the kind off as well.
    pub requires_host_tool: bool,
}

impl HostPolicy {
    /// Returns the policy that turns everything off.
    pub fn off() -> Self {
        Self {
            default: Some(ExecutedBy::Off),
            ..Self::default()
        }
    }

    /// Returns this policy where it states something, and `base` elsewhere.
    pub fn or(&self, base: &Self) -> Self {
        let mut kinds = base.kinds.clone();
        if self.default.is_some() {
            kinds.clear();
        }
        kinds.extend(self.kinds.iter().map(|(tool, mode)| (*tool, *mode)));
        Self {
            default: self.default.or(base.default),
            kinds,
            requires_host_tool: self.requires_host_tool || base.requires_host_tool,
        }
    }

    fn mode(&self, tool: NativeTool) -> Option<ExecutedBy> {
        self.kinds.get(&tool).copied().or(self.default)
    }
}

/// Why a native tool is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DenialReason {
    /// The user's settings turn native tools off.
    Settings,
    /// The user's settings deny this tool.
    Denied,
    /// The host states that it is off.
    Host,
    /// The host's tool for the same work is switched off.
    SwitchedOff,
    /// It is left to the host, which has no tool for it.
    NoHostTool,
    /// The turn only plans.
    PlanMode,
    /// The host was asked for permission and did not give it.
    Declined,
}

/// Who executes a native tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolDecision {
    /// This process.
    Local,
    /// A tool of the host.
    Host,
    /// This process, after the host has given permission.
    Ask,
    /// It is refused.
    Refuse(DenialReason),
}

/// The decision for every native tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolDecisions(BTreeMap<NativeTool, ToolDecision>);

impl ToolDecisions {
    /// Decides for a host with these tools active. In plan mode nothing may change, so every tool
    /// that can change something is refused.
    pub fn new(
        settings: &ToolPolicy,
        stated: &HostPolicy,
        host: &HostToolSet,
        plan_mode: bool,
    ) -> Self {
        let decide = |tool: NativeTool| decide(tool, settings, stated, host, plan_mode);
        Self(NativeTool::ALL.map(|(_, tool)| (tool, decide(tool))).into())
    }

    /// Returns the decision for a tool.
    pub fn of(&self, tool: NativeTool) -> ToolDecision {
        let missing = ToolDecision::Refuse(DenialReason::Settings);
        self.0.get(&tool).copied().unwrap_or(missing)
    }

    /// Returns the names of the tools that are executed, here or by the host.
    pub fn available(&self) -> Vec<&'static str> {
        let executed = |tool: &NativeTool| !matches!(self.of(*tool), ToolDecision::Refuse(_));
        let tools = NativeTool::ALL.iter().map(|(_, tool)| *tool);
        tools.filter(executed).map(NativeTool::name).collect()
    }

    /// Returns the names of the tools that are refused because nothing here can execute them, and
    /// of those that are refused for another reason.
    pub fn missing_and_switched_off(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let (mut missing, mut switched_off) = (Vec::new(), Vec::new());
        for (_, tool) in NativeTool::ALL {
            match self.of(tool) {
                ToolDecision::Refuse(DenialReason::NoHostTool) => missing.push(tool.name()),
                ToolDecision::Refuse(_) => switched_off.push(tool.name()),
                ToolDecision::Local | ToolDecision::Host | ToolDecision::Ask => {}
            }
        }
        (missing, switched_off)
    }

    /// Returns the native tools the server must not offer to the model, because they would be
    /// refused.
    pub fn gates(&self) -> ToolGates {
        let refused = |tool: &NativeTool| matches!(self.of(*tool), ToolDecision::Refuse(_));
        let tools = NativeTool::ALL.iter().map(|(_, tool)| *tool);
        let names = tools.filter(refused).flat_map(NativeTool::calls);
        ToolGates {
            allowed: None,
            excluded: names.map(|name| (*name).to_owned()).collect(),
        }
    }
}

fn decide(
    tool: NativeTool,
    settings: &ToolPolicy,
    stated: &HostPolicy,
    host: &HostToolSet,
    plan_mode: bool,
) -> ToolDecision {
    let refuse = ToolDecision::Refuse;
    if settings.denied.contains(&tool) {
        return refuse(DenialReason::Denied);
    }
    let by_host = stated.mode(tool);
    if by_host == Some(ExecutedBy::Off) {
        return refuse(DenialReason::Host);
    }
    let chosen = settings.overrides.get(&tool).copied().or(settings.mode);
    let mode = chosen.or(by_host).unwrap_or(ExecutedBy::Host);
    if mode == ExecutedBy::Off {
        let all = settings.mode == Some(ExecutedBy::Off);
        return refuse(if all {
            DenialReason::Settings
        } else {
            DenialReason::Denied
        });
    }
    if plan_mode && tool.changes_something() {
        return refuse(DenialReason::PlanMode);
    }
    if stated.requires_host_tool && !tool.switched_by().iter().any(|name| host.has(name)) {
        return refuse(DenialReason::SwitchedOff);
    }
    match mode {
        ExecutedBy::Local => ToolDecision::Local,
        ExecutedBy::Ask => ToolDecision::Ask,
        ExecutedBy::Host if host.can_execute(tool) => ToolDecision::Host,
        ExecutedBy::Host | ExecutedBy::Off => refuse(DenialReason::NoHostTool),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn host(names: &[&str]) -> HostToolSet {
        let schema = json!({"properties": {
            "path": {}, "command": {}, "pattern": {}, "content": {}, "edits": {},
        }});
        HostToolSet::new(names.iter().map(|name| (*name, &schema)))
    }

    /// What pi's extension states.
    fn pi() -> HostPolicy {
        let by_host = [NativeTool::Shell, NativeTool::Write, NativeTool::Delete];
        HostPolicy {
            default: Some(ExecutedBy::Local),
            kinds: by_host.map(|tool| (tool, ExecutedBy::Host)).into(),
            requires_host_tool: true,
        }
    }

    fn table(settings: &ToolPolicy, stated: &HostPolicy, host: &HostToolSet, plan: bool) -> String {
        let decisions = ToolDecisions::new(settings, stated, host, plan);
        let word = |tool| match decisions.of(tool) {
            ToolDecision::Local => "local".to_owned(),
            ToolDecision::Host => "host".to_owned(),
            ToolDecision::Ask => "ask".to_owned(),
            ToolDecision::Refuse(denial) => format!("{denial:?}"),
        };
        let line = |(name, tool): &(&str, NativeTool)| format!("{name}={}", word(*tool));
        NativeTool::ALL
            .iter()
            .map(line)
            .collect::<Vec<_>>()
            .join(" ")
    }

    const ALL: [&str; 7] = ["read", "bash", "edit", "write", "grep", "find", "ls"];

    #[test]
    fn a_host_that_states_nothing_has_nothing_executed_here() {
        let settings = ToolPolicy::default();
        let nothing = HostPolicy::default();
        assert_eq!(
            table(&settings, &nothing, &host(&["read", "bash"]), false),
            "read=host ls=NoHostTool grep=NoHostTool write=NoHostTool delete=host shell=host \
             fetch=NoHostTool git_diff=NoHostTool diagnostics=NoHostTool"
        );
        assert!(!table(&settings, &nothing, &host(&[]), false).contains("local"));
    }

    #[test]
    fn tools_whose_host_tool_is_inactive_are_switched_off() {
        let settings = ToolPolicy::default();
        let of = |names: &[&str]| table(&settings, &pi(), &host(names), false);
        assert_eq!(
            of(&ALL),
            "read=local ls=local grep=local write=host delete=host shell=host fetch=local \
             git_diff=local diagnostics=local"
        );
        assert_eq!(
            of(&["read", "grep", "find", "ls"]),
            "read=local ls=local grep=local write=SwitchedOff delete=SwitchedOff \
             shell=SwitchedOff fetch=SwitchedOff git_diff=local diagnostics=local"
        );
        let none = of(&[]);
        assert_eq!(
            none.matches("SwitchedOff").count(),
            NativeTool::ALL.len(),
            "{none}"
        );
    }

    #[test]
    fn settings_do_not_override_the_hosts_switches() {
        let settings = ToolPolicy {
            mode: Some(ExecutedBy::Local),
            ..ToolPolicy::default()
        };
        let line = table(&settings, &pi(), &host(&["read"]), false);
        assert!(line.contains("shell=SwitchedOff"), "{line}");
        assert!(line.starts_with("read=local ls=SwitchedOff"), "{line}");
        let line = table(&settings, &pi(), &host(&ALL), false);
        assert!(
            line.contains("write=local delete=local shell=local"),
            "{line}"
        );
    }

    #[test]
    fn an_off_of_the_host_cannot_be_overruled_by_settings() {
        let settings = ToolPolicy {
            mode: Some(ExecutedBy::Local),
            ..ToolPolicy::default()
        };
        let line = table(&settings, &HostPolicy::off(), &host(&ALL), false);
        assert_eq!(
            line.matches("=Host").count(),
            NativeTool::ALL.len(),
            "{line}"
        );
    }

    #[test]
    fn plan_mode_refuses_every_change() {
        let settings = ToolPolicy::default();
        assert_eq!(
            table(&settings, &pi(), &host(&ALL), true),
            "read=local ls=local grep=local write=PlanMode delete=PlanMode shell=PlanMode \
             fetch=local git_diff=local diagnostics=local"
        );
    }

    #[test]
    fn the_policy_of_a_turn_replaces_that_of_the_connection() {
        let asks = HostPolicy {
            kinds: [(NativeTool::Shell, ExecutedBy::Ask)].into(),
            ..HostPolicy::default()
        };
        let both = asks.or(&pi());
        assert_eq!(both.mode(NativeTool::Shell), Some(ExecutedBy::Ask));
        assert_eq!(both.mode(NativeTool::Write), Some(ExecutedBy::Host));
        assert!(both.requires_host_tool);
        let all_off = HostPolicy::off().or(&pi());
        assert_eq!(all_off.mode(NativeTool::Shell), Some(ExecutedBy::Off));
    }

    #[test]
    fn the_server_must_not_offer_tools_that_would_be_refused() {
        let settings = ToolPolicy::default();
        let gates = |names: &[&str]| {
            let decisions = ToolDecisions::new(&settings, &pi(), &host(names), false);
            decisions.gates().excluded
        };
        assert_eq!(gates(&ALL), [""; 0]);
        let read_only = gates(&["read", "grep", "find", "ls"]);
        for name in ["shell_tool_call", "edit_tool_call", "delete_tool_call"] {
            assert!(read_only.contains(&name.to_owned()), "{read_only:?}");
        }
        assert!(!read_only.contains(&"read_tool_call".to_owned()));
    }
}
