//! Permission from the host for native tools in mode `ask`, and a turn's tool settings.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use tokio::sync::{oneshot, watch};

use crate::ExecRequest;
use crate::host_delegate::HostToolSet;
use crate::policy::{HostPolicy, NativeTool, ToolDecisions, ToolPolicy};

/// The maximum number of characters of a command or path in a permission request.
const MAX_SUBJECT: usize = 2_000;

/// The tool settings of the current turn of a run. A run may outlive a turn, and the next turn
/// may change them, so executors read them for every request.
#[derive(Debug, Clone)]
pub struct TurnTools {
    /// Who executes which native tool.
    pub decisions: ToolDecisions,
    /// The host's active tools.
    pub host: HostToolSet,
    /// Whether the MCP servers of the user's Cursor settings may be called.
    pub mcp_servers: bool,
    /// Where permission requests go; `None` for a host that cannot be asked.
    pub permissions: Option<Arc<dyn PermissionSender>>,
}

impl TurnTools {
    /// Creates the settings of a turn. MCP servers are off too if the host's switches count and
    /// the host has switched every tool off.
    pub fn new(
        settings: &ToolPolicy,
        stated: &HostPolicy,
        host: HostToolSet,
        plan_mode: bool,
        permissions: Option<Arc<dyn PermissionSender>>,
    ) -> Self {
        Self {
            decisions: ToolDecisions::new(settings, stated, &host, plan_mode),
            mcp_servers: !stated.requires_host_tool || !host.is_empty(),
            host,
            permissions,
        }
    }
}

/// The tool settings of the current turn, as an executor receives them.
pub type CurrentTools = watch::Receiver<Arc<TurnTools>>;

/// Sends permission requests to the host of one turn.
pub trait PermissionSender: std::fmt::Debug + Send + Sync {
    /// Returns whether the host was sent the request, which a turn that has ended is not.
    fn send(&self, request: PermissionRequest) -> BoxFuture<'_, bool>;
}

/// A question to the host: may this native tool be executed?
#[derive(Debug)]
pub struct PermissionRequest {
    /// The tool that needs permission.
    pub tool: NativeTool,
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
pub struct GrantedTools(Arc<Mutex<BTreeSet<NativeTool>>>);

impl GrantedTools {
    fn contains(&self, tool: NativeTool) -> bool {
        let granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.contains(&tool)
    }

    fn insert(&self, tool: NativeTool) {
        let mut granted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        granted.insert(tool);
    }
}

/// Returns whether the host permits a request. While no turn is in progress the host cannot be
/// asked, so the request waits for the next turn; the caller stops waiting when the run ends.
pub(super) async fn is_permitted(
    tool: NativeTool,
    request: &ExecRequest,
    granted: &GrantedTools,
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
        if asked.send(question).await
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
fn subject(request: &ExecRequest) -> String {
    let text = match request {
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => args.command.as_str(),
        ExecRequest::BackgroundShellSpawnArgs(args) => args.command.as_str(),
        ExecRequest::PiBashArgs(args) => args.command.as_str(),
        ExecRequest::WriteShellStdinArgs(args) => args.chars.as_str(),
        ExecRequest::ReadArgs(args) => args.path.as_str(),
        ExecRequest::PiReadArgs(args) => args.path.as_str(),
        ExecRequest::LsArgs(args) => args.path.as_str(),
        ExecRequest::PiLsArgs(args) => args.path.as_deref().unwrap_or_default(),
        ExecRequest::PiFindArgs(args) => args.pattern.as_str(),
        ExecRequest::GrepArgs(args) if args.pattern.is_empty() => {
            args.glob.as_deref().unwrap_or_default()
        }
        ExecRequest::GrepArgs(args) => args.pattern.as_str(),
        ExecRequest::PiGrepArgs(args) => args.pattern.as_str(),
        ExecRequest::WriteArgs(args) => args.path.as_str(),
        ExecRequest::PiWriteArgs(args) => args.path.as_str(),
        ExecRequest::PiEditArgs(args) => args.path.as_str(),
        ExecRequest::DeleteArgs(args) => args.path.as_str(),
        ExecRequest::DiagnosticsArgs(args) => args.path.as_str(),
        ExecRequest::FetchArgs(args) => args.url.as_str(),
        _ => "",
    };
    // Redact before cutting, because a secret that is cut in two would not be found.
    foundation::secrets()
        .scrub(text)
        .chars()
        .take(MAX_SUBJECT)
        .collect()
}
