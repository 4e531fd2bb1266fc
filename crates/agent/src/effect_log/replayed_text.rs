//! Recorded replies as text.

use crate::prompts;
use agent_tools::ExecReply;
use cursor_proto::agent::v1::{
    McpToolResultContentItem, ShellStream, mcp_result, mcp_tool_result_content_item,
    pi_bash_exec_result, shell_result, shell_stream,
};

/// Bytes of output that are sent; of longer output, the last ones.
const MAX_OUTPUT: usize = 16 * 1024;

/// Returns the message for a request that was already executed and whose result the server may
/// have.
pub(super) fn ran_before(replies: &[ExecReply]) -> String {
    prompts::already_executed(&output(replies))
}

/// Returns the output in the replies, or the end of it if it is long.
pub(super) fn output(replies: &[ExecReply]) -> String {
    let output: String = replies.iter().map(output_text).collect();
    end_of(output.trim_end()).to_owned()
}

fn end_of(text: &str) -> &str {
    let start = text.len().saturating_sub(MAX_OUTPUT);
    let start = (start..=text.len()).find(|at| text.is_char_boundary(*at));
    &text[start.unwrap_or(text.len())..]
}

fn output_text(reply: &ExecReply) -> String {
    match reply {
        ExecReply::ShellStream(ShellStream { event: Some(event) }) => match event {
            shell_stream::Event::Stdout(out) => out.data.clone(),
            shell_stream::Event::Stderr(error) => error.data.clone(),
            shell_stream::Event::Exit(exit) if exit.code != 0 => exited(exit.code.cast_signed()),
            _ => String::new(),
        },
        ExecReply::ShellResult(result) => match &result.result {
            Some(shell_result::Result::Success(done)) => format!("{}{}", done.stdout, done.stderr),
            Some(shell_result::Result::Failure(failed)) => format!(
                "{}{}{}",
                failed.stdout,
                failed.stderr,
                exited(failed.exit_code)
            ),
            _ => String::new(),
        },
        ExecReply::PiBashResult(result) => match &result.result {
            Some(pi_bash_exec_result::Result::Success(done)) => done.output.clone(),
            Some(pi_bash_exec_result::Result::Error(failed)) => failed.error.clone(),
            None => String::new(),
        },
        ExecReply::McpResult(result) => match &result.result {
            Some(mcp_result::Result::Success(done)) => done.content.iter().map(text).collect(),
            _ => String::new(),
        },
        _ => String::new(),
    }
}

fn exited(code: i32) -> String {
    format!("\n[exit code {code}]")
}

fn text(item: &McpToolResultContentItem) -> String {
    match &item.content {
        Some(mcp_tool_result_content_item::Content::Text(text)) => format!("{}\n", text.text),
        _ => String::new(),
    }
}
