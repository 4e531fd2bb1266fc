//! Digests that identify a request by its effect, whatever its ids are.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use agent_tools::Request;

/// Digest of the effect of a request that may change something. Call ids and display hints are not
/// part of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct What([u8; 32]);

impl What {
    /// Returns the digest of a request, or `None` for kinds without a defined digest.
    pub fn of(request: &Request) -> Option<Self> {
        what(request)
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

impl std::fmt::Display for What {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

pub(super) fn what(request: &Request) -> Option<What> {
    let mut parts: Vec<&[u8]> = Vec::new();
    let (number, encoded);
    match request {
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => {
            parts.extend([b"shell", args.command.as_bytes()]);
            parts.push(args.working_directory.as_bytes());
        }
        Request::BackgroundShellSpawnArgs(args) => {
            parts.extend([&b"background"[..], args.command.as_bytes()]);
            parts.push(args.working_directory.as_bytes());
        }
        Request::WriteShellStdinArgs(args) => {
            number = args.shell_id.to_string();
            parts.extend([b"stdin", number.as_bytes(), args.chars.as_bytes()]);
        }
        Request::WriteArgs(args) => {
            parts.extend([&b"write"[..], args.path.as_bytes()]);
            parts.extend([args.file_text.as_bytes(), &args.file_bytes]);
        }
        Request::DeleteArgs(args) => parts.extend([b"delete", args.path.as_bytes()]),
        Request::McpArgs(args) => {
            parts.extend([&b"mcp"[..], args.provider_identifier.as_bytes()]);
            parts.extend([args.name.as_bytes(), args.tool_name.as_bytes()]);
            // The server sends them in any order.
            let mut entries: Vec<_> = args.args.iter().collect();
            entries.sort_by_key(|entry| &entry.key);
            for entry in entries {
                parts.extend([entry.key.as_bytes(), &entry.value]);
            }
        }
        Request::PiBashArgs(args) => parts.extend([b"pi bash", args.command.as_bytes()]),
        Request::PiEditArgs(args) => {
            encoded = args.encode_to_vec();
            parts.extend([&b"pi edit"[..], &encoded]);
        }
        Request::PiWriteArgs(args) => {
            parts.extend([&b"pi write"[..], args.path.as_bytes()]);
            parts.push(args.content.as_bytes());
        }
        _ => return None,
    }
    let mut digest = Sha256::new();
    for part in parts {
        digest.update(part.len().to_le_bytes());
        digest.update(part);
    }
    Some(What(digest.finalize().into()))
}

/// Returns the server's tool call id; empty if it sent none.
pub(in crate::run) fn call_id(request: &Request) -> &str {
    match request {
        Request::ShellArgs(args)
        | Request::ShellStreamArgs(args)
        | Request::MiniSweAgentBashArgs(args) => &args.tool_call_id,
        Request::BackgroundShellSpawnArgs(args) => &args.tool_call_id,
        Request::WriteArgs(args) => &args.tool_call_id,
        Request::DeleteArgs(args) => &args.tool_call_id,
        Request::McpArgs(args) => &args.tool_call_id,
        _ => "",
    }
}
