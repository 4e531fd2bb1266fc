//! Permission from the host for native tools in mode `ask`, and a turn's tool settings.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{mpsc, oneshot, watch};

use super::Request;
use super::by_host::HostTools;
use super::native::policy::{Decisions, HostPolicy, Policy, Tool};

/// The maximum number of characters of a command or path in a permission request.
const MAX_SUBJECT: usize = 2_000;

/// The tool settings of the current turn of a run. A run may outlive a turn, and the next turn
/// may change them, so executors read them for every request.
#[derive(Debug, Clone)]
pub struct TurnTools {
    /// Who executes which native tool.
    pub decisions: Decisions,
    /// The host's active tools.
    pub host: HostTools,
    /// Whether the MCP servers of the user's Cursor settings may be called.
    pub mcp_servers: bool,
    /// Where permission requests go; `None` for a host that cannot be asked.
    pub permissions: Option<mpsc::Sender<PermissionRequest>>,
}

impl TurnTools {
    /// Creates the settings of a turn. MCP servers are off too if the host's switches count and
    /// the host has switched every tool off.
    pub fn new(
        settings: &Policy,
        stated: &HostPolicy,
        host: HostTools,
        plan_mode: bool,
        permissions: Option<mpsc::Sender<PermissionRequest>>,
    ) -> Self {
        Self {
            decisions: Decisions::new(settings, stated, &host, plan_mode),
            mcp_servers: !stated.requires_host_tool || !host.is_empty(),
            host,
            permissions,
        }
    }
}

/// The tool settings of the current turn, as an executor receives them.
pub type CurrentTools = watch::Receiver<Arc<TurnTools>>;

/// A question to the host: may this native tool be executed?
#[derive(Debug)]
pub struct PermissionRequest {
    /// The tool that needs permission.
    pub tool: Tool,
    /// The command line, path or URL. Secrets are redacted.
    pub subject: String,
    /// Receives the answer. If it is dropped, the request is repeated in the next turn.
    pub answer: oneshot::Sender<Permission>,
}

/// The host's answer to a permission request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Execute this once.
    AllowOnce,
    /// Execute this, and allow this kind of tool for the rest of the session.
    AllowSession,
    /// Do not execute it.
    Deny,
}

/// Kinds of tools the host has allowed for the rest of a session.
#[derive(Debug, Clone, Default)]
pub struct Granted(Arc<Mutex<BTreeSet<Tool>>>);

impl Granted {
    fn contains(&self, tool: Tool) -> bool {
        let granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.contains(&tool)
    }

    fn insert(&self, tool: Tool) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.insert(tool);
    }
}

/// Returns whether the host permits a request. While no turn is in progress the host cannot be
/// asked, so the request waits for the next turn; the caller stops waiting when the run ends.
pub(super) async fn is_permitted(
    tool: Tool,
    request: &Request,
    granted: &Granted,
    current: &mut CurrentTools,
) -> bool {
    if granted.contains(tool) {
        return true;
    }
    let subject = subject(request);
    loop {
        let asked = current.borrow_and_update().permissions.clone();
        let Some(asked) = asked else {
            return false;
        };
        let (answer, answered) = oneshot::channel();
        let question = PermissionRequest {
            tool,
            subject: subject.clone(),
            answer,
        };
        if asked.send(question).await.is_ok()
            && let Ok(permission) = answered.await
        {
            if permission == Permission::AllowSession {
                granted.insert(tool);
            }
            return permission != Permission::Deny;
        }
        if current.changed().await.is_err() {
            return false;
        }
    }
}

/// Returns what a request is about: its command, path, pattern or URL.
fn subject(request: &Request) -> String {
    let text = match request {
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => args.command.as_str(),
        Request::BackgroundShellSpawnArgs(args) => args.command.as_str(),
        Request::PiBashArgs(args) => args.command.as_str(),
        Request::WriteShellStdinArgs(args) => args.chars.as_str(),
        Request::ReadArgs(args) => args.path.as_str(),
        Request::PiReadArgs(args) => args.path.as_str(),
        Request::LsArgs(args) => args.path.as_str(),
        Request::PiLsArgs(args) => args.path.as_deref().unwrap_or_default(),
        Request::PiFindArgs(args) => args.pattern.as_str(),
        Request::GrepArgs(args) if args.pattern.is_empty() => {
            args.glob.as_deref().unwrap_or_default()
        }
        Request::GrepArgs(args) => args.pattern.as_str(),
        Request::PiGrepArgs(args) => args.pattern.as_str(),
        Request::WriteArgs(args) => args.path.as_str(),
        Request::PiWriteArgs(args) => args.path.as_str(),
        Request::PiEditArgs(args) => args.path.as_str(),
        Request::DeleteArgs(args) => args.path.as_str(),
        Request::DiagnosticsArgs(args) => args.path.as_str(),
        Request::FetchArgs(args) => args.url.as_str(),
        _ => "",
    };
    // Redact before cutting, because a secret that is cut in two would not be found.
    foundation::secrets()
        .scrub(text)
        .chars()
        .take(MAX_SUBJECT)
        .collect()
}
