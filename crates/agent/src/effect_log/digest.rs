//! Digests that identify a request by its effect, whatever its ids are.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use agent_tools::ExecRequest;

/// Digest of the effect of a request that may change something. Call ids and display hints are not
/// part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EffectDigest([u8; 32]);

impl EffectDigest {
    /// Returns the digest of a request, or `None` for kinds without a defined digest.
    pub fn of(request: &ExecRequest) -> Option<Self> {
        match RequestEffect::of(request) {
            RequestEffect::Known(digest) => Some(digest),
            RequestEffect::Nothing | RequestEffect::Unknown => None,
        }
    }

    /// Parses the hexadecimal form that [`Self::fmt`] writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = [0; 32];
        let digits = text.as_bytes().chunks_exact(2);
        if text.len() != 2 * digest.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return None;
        }
        for (byte, pair) in digest.iter_mut().zip(digits) {
            *byte = u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok()?;
        }
        Some(Self(digest))
    }
}

impl std::fmt::Display for EffectDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What executing a request changes.
enum RequestEffect {
    /// Nothing, or nothing that a repetition would change again.
    Nothing,
    /// Something that the digest identifies.
    Known(EffectDigest),
    /// Something, but two requests cannot be compared.
    Unknown,
}

/// Returns whether a request may change something, so that it must not be executed twice.
pub(crate) fn is_lasting(request: &ExecRequest) -> bool {
    !matches!(RequestEffect::of(request), RequestEffect::Nothing)
}

impl RequestEffect {
    fn of(request: &ExecRequest) -> Self {
        let mut parts: Vec<&[u8]> = Vec::new();
        let (number, encoded);
        match request {
            ExecRequest::ShellArgs(args)
            | ExecRequest::ShellStreamArgs(args)
            | ExecRequest::MiniSweAgentBashArgs(args) => {
                parts.extend([b"shell", args.command.as_bytes()]);
                parts.push(args.working_directory.as_bytes());
            }
            ExecRequest::BackgroundShellSpawnArgs(args) => {
                parts.extend([&b"background"[..], args.command.as_bytes()]);
                parts.push(args.working_directory.as_bytes());
            }
            ExecRequest::WriteShellStdinArgs(args) => {
                number = args.shell_id.to_string();
                parts.extend([b"stdin", number.as_bytes(), args.chars.as_bytes()]);
            }
            ExecRequest::WriteArgs(args) => {
                parts.extend([&b"write"[..], args.path.as_bytes()]);
                parts.extend([args.file_text.as_bytes(), &args.file_bytes]);
            }
            ExecRequest::DeleteArgs(args) => parts.extend([b"delete", args.path.as_bytes()]),
            ExecRequest::McpArgs(args) => {
                parts.extend([&b"mcp"[..], args.provider_identifier.as_bytes()]);
                parts.extend([args.name.as_bytes(), args.tool_name.as_bytes()]);
                // The server sends them in any order.
                let mut entries: Vec<_> = args.args.iter().collect();
                entries.sort_by_key(|entry| &entry.key);
                for entry in entries {
                    parts.extend([entry.key.as_bytes(), &entry.value]);
                }
            }
            ExecRequest::PiBashArgs(args) => parts.extend([b"pi bash", args.command.as_bytes()]),
            ExecRequest::PiEditArgs(args) => {
                encoded = args.encode_to_vec();
                parts.extend([&b"pi edit"[..], &encoded]);
            }
            ExecRequest::PiWriteArgs(args) => {
                parts.extend([&b"pi write"[..], args.path.as_bytes()]);
                parts.push(args.content.as_bytes());
            }
            ExecRequest::SubagentArgs(_)
            | ExecRequest::ComputerUseArgs(_)
            | ExecRequest::ExecuteHookArgs(_) => return Self::Unknown,
            ExecRequest::ReadArgs(_)
            | ExecRequest::RedactedReadArgs(_)
            | ExecRequest::LsArgs(_)
            | ExecRequest::GrepArgs(_)
            | ExecRequest::DiagnosticsArgs(_)
            | ExecRequest::FetchArgs(_)
            | ExecRequest::GitDiffRequest(_)
            | ExecRequest::PiReadArgs(_)
            | ExecRequest::PiGrepArgs(_)
            | ExecRequest::PiFindArgs(_)
            | ExecRequest::PiLsArgs(_)
            | ExecRequest::RequestContextArgs(_)
            | ExecRequest::McpStateExecArgs(_)
            | ExecRequest::ListMcpResourcesExecArgs(_)
            | ExecRequest::ReadMcpResourceExecArgs(_)
            | ExecRequest::ForceBackgroundShellArgs(_)
            | ExecRequest::ForceBackgroundSubagentArgs(_)
            | ExecRequest::SubagentAwaitArgs(_)
            | ExecRequest::RecordScreenArgs(_)
            | ExecRequest::SmartModeClassifierArgs(_)
            | ExecRequest::CanvasDiagnosticsArgs(_)
            | ExecRequest::ShellAllowlistPrecheckArgs(_)
            | ExecRequest::McpAllowlistPrecheckArgs(_)
            | ExecRequest::WebFetchAllowlistPrecheckArgs(_)
            | ExecRequest::ConversationSearchArgs(_)
            | ExecRequest::AgentStoreConflictArgs(_)
            | ExecRequest::AdoptArgs(_) => return Self::Nothing,
        }
        let mut digest = Sha256::new();
        for part in parts {
            digest.update(part.len().to_le_bytes());
            digest.update(part);
        }
        Self::Known(EffectDigest(digest.finalize().into()))
    }
}

/// Returns the server's tool call id; empty if it sent none.
pub(crate) fn call_id(request: &ExecRequest) -> &str {
    match request {
        ExecRequest::ShellArgs(args)
        | ExecRequest::ShellStreamArgs(args)
        | ExecRequest::MiniSweAgentBashArgs(args) => &args.tool_call_id,
        ExecRequest::BackgroundShellSpawnArgs(args) => &args.tool_call_id,
        ExecRequest::WriteArgs(args) => &args.tool_call_id,
        ExecRequest::DeleteArgs(args) => &args.tool_call_id,
        ExecRequest::McpArgs(args) => &args.tool_call_id,
        _ => "",
    }
}
