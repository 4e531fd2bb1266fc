//! What a turn waits for, as one line for a host that displays it.

use cursor_proto::agent::v1::{ToolCall, tool_call::Tool};

use crate::run::RunEvent;
use crate::turn::channels::OpenTurn;
use crate::turn::request::TurnEvent;

/// The most characters of a command.
const MAX_COMMAND_CHARS: usize = 60;
/// The most calls that are remembered; a server may never complete them.
const MAX_TOOLS: usize = 64;
const NEXT: &str = "Waiting for Cursor";

/// The line that was displayed last, and what it is made of.
#[derive(Debug, Default)]
pub(super) struct WaitDisplay {
    displayed: String,
    /// The ids and lines of tool calls that have not completed.
    tools: Vec<(String, String)>,
}

impl WaitDisplay {
    /// Returns the line for the start of a turn.
    pub(super) fn begin(&mut self) -> String {
        self.displayed = self.current_tool();
        self.displayed.clone()
    }

    /// Returns the new line if an event changes it.
    pub(super) fn update(&mut self, event: &RunEvent) -> Option<String> {
        let line = match event {
            RunEvent::Text(_) => "Cursor is answering".to_owned(),
            RunEvent::Thinking(_) => "Cursor is thinking".to_owned(),
            RunEvent::Retrying(attempt) => {
                self.tools.clear();
                attempt.waiting_line()
            }
            RunEvent::ToolStarted(update) => {
                let line = update.tool_call.as_ref().and_then(line)?;
                self.tools.retain(|(id, _)| *id != update.call_id);
                if self.tools.len() == MAX_TOOLS {
                    self.tools.remove(0);
                }
                self.tools.push((update.call_id.clone(), line));
                self.current_tool()
            }
            RunEvent::ToolCompleted(update) => {
                self.tools.retain(|(id, _)| *id != update.call_id);
                self.current_tool()
            }
            _ => return None,
        };
        (line != self.displayed).then(|| {
            self.displayed.clone_from(&line);
            line
        })
    }

    fn current_tool(&self) -> String {
        let tool = self.tools.last();
        tool.map_or_else(|| NEXT.to_owned(), |(_, line)| line.clone())
    }
}

/// Sends a line, or drops it if the host is slow: the next one replaces it.
pub(super) fn send_wait(line: String, request: &OpenTurn) {
    request.send_now(TurnEvent::Waiting(line));
}

/// Returns the line for a call that takes time; `None` for those that are quick or displayed
/// elsewhere.
fn line(call: &ToolCall) -> Option<String> {
    Some(match call.tool.as_ref()? {
        Tool::ShellToolCall(shell) => {
            let command = &shell.args.as_ref()?.command;
            let first = command.trim().lines().next().unwrap_or_default();
            let mut shown: String = first.chars().take(MAX_COMMAND_CHARS).collect();
            if shown.len() < command.trim().len() {
                shown.push('…');
            }
            format!("Running `{shown}`")
        }
        Tool::GrepToolCall(_) | Tool::GlobToolCall(_) | Tool::SemSearchToolCall(_) => {
            "Searching files".to_owned()
        }
        Tool::ReadToolCall(_) | Tool::LsToolCall(_) => "Reading files".to_owned(),
        Tool::EditToolCall(_) => "Editing a file".to_owned(),
        Tool::WebSearchToolCall(_) | Tool::FetchToolCall(_) => "Searching the web".to_owned(),
        Tool::TaskToolCall(_) => "Waiting for a subagent".to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::FailedAttempt;
    use cursor_client::failure::Failure;
    use cursor_proto::agent::v1::*;

    fn shell(id: &str, command: &str) -> (String, Option<ToolCall>) {
        let args = ShellArgs {
            command: command.into(),
            ..ShellArgs::default()
        };
        let call = ShellToolCall {
            args: Some(args),
            ..ShellToolCall::default()
        };
        let tool = Some(Tool::ShellToolCall(call));
        let call = ToolCall {
            tool,
            ..ToolCall::default()
        };
        (id.into(), Some(call))
    }

    fn started(id: &str, command: &str) -> RunEvent {
        let (call_id, tool_call) = shell(id, command);
        RunEvent::ToolStarted(Box::new(ToolCallStartedUpdate {
            call_id,
            tool_call,
            ..ToolCallStartedUpdate::default()
        }))
    }

    #[test]
    fn the_newest_calls_are_remembered() {
        let mut display = WaitDisplay::default();
        for id in 0..=MAX_TOOLS {
            display.update(&started(&id.to_string(), "ls"));
        }
        assert_eq!(display.tools.len(), MAX_TOOLS);
        assert_eq!(display.tools[0].0, "1");
    }

    #[test]
    fn each_line_is_displayed_once() {
        let completed = |id: &str| {
            RunEvent::ToolCompleted(Box::new(ToolCallCompletedUpdate {
                call_id: id.into(),
                ..ToolCallCompletedUpdate::default()
            }))
        };
        let mut display = WaitDisplay::default();
        let mut lines = vec![display.begin()];
        for event in [
            RunEvent::Retrying(FailedAttempt {
                failure: Failure::Transport("reset".into()),
                next: 2,
                last: 4,
            }),
            RunEvent::Thinking("a".into()),
            RunEvent::Thinking("b".into()),
            started("1", "cargo test\nls"),
            started("2", "sleep 9"),
            completed("2"),
            completed("1"),
            RunEvent::Text("ok".into()),
        ] {
            lines.push(display.update(&event).unwrap_or_else(|| "-".into()));
        }
        insta::assert_snapshot!(lines.join("\n"), @r"
        Waiting for Cursor
        Connecting to Cursor, attempt 2 of 4 (the connection failed)
        Cursor is thinking
        -
        Running `cargo test…`
        Running `sleep 9`
        Running `cargo test…`
        Waiting for Cursor
        Cursor is answering
        ");
    }
}
