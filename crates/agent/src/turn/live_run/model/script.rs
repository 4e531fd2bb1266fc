//! What the simulated server says and requests, and what it knows of it.

use std::collections::BTreeSet;

use agent_tools::ExecRequest;
use cursor_proto::agent::v1::{McpArgs, ShellArgs};

/// What the server says; each sentence is followed by two commands. No sentence recurs.
pub(super) const SENTENCES: [&str; 6] = [
    "First the sources are read. ",
    "Then a test is written that fails. ",
    "Now the defect can be corrected. ",
    "All other tests pass as before. ",
    "The description needs a correction. ",
    "Nothing is left to be done here. ",
];

/// What the server knows.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ServerKnowledge {
    pub(super) sentences: usize,
    pub(super) requested: BTreeSet<usize>,
    pub(super) results: BTreeSet<usize>,
    pub(super) messages: BTreeSet<String>,
}

pub(super) fn is_hosts(command: usize) -> bool {
    command % 2 == 1
}

pub(super) fn host_id(command: usize) -> String {
    format!("host-{command}")
}

/// Returns the request for a command. A stream has call ids of its own for native commands.
pub(super) fn request(command: usize, number: u32) -> ExecRequest {
    if is_hosts(command) {
        ExecRequest::McpArgs(McpArgs {
            name: format!("tool {command}"),
            tool_call_id: format!("call {command}."),
            ..McpArgs::default()
        })
    } else {
        ExecRequest::ShellArgs(ShellArgs {
            command: format!("command {command}"),
            tool_call_id: format!("call {command} {number}."),
            ..ShellArgs::default()
        })
    }
}
