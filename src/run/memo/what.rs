//! What a request does, whatever it is called.

use prost::Message as _;
use sha2::{Digest as _, Sha256};

use crate::tools::Request;

/// A digest of what a request does. Ids and hints say nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct What([u8; 32]);

/// The requests that can be told apart by what they do.
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
            // Their order is anybody's.
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

/// The server's name of a call; empty if it has none.
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
