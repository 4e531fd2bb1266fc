//! Descriptions of tools, and results and errors of single tools.

use std::fmt::Display;
use std::time::Duration;

/// The description of the tool that asks the user.
pub const QUESTION_DESCRIPTION: &str = "Ask the user one or more questions";
pub(crate) const NO_QUESTION: &str = "The call contains no question.";
pub(crate) const UI_UNAVAILABLE: &str = "UI is unavailable: state your assumption and continue.";
pub(crate) const QUESTION_CANCELLED: &str = "User cancelled the question.";

pub(crate) const TOOL_CRASHED: &str = "the tool crashed";
pub(crate) const CALL_CANCELLED: &str = "the call was cancelled";
pub(crate) const REQUEST_CANCELLED: &str = "the request was cancelled";
pub(crate) const READ_CANCELLED: &str = "the read was cancelled";
pub(crate) const SEARCH_CANCELLED: &str = "the search was cancelled";
pub(crate) const FETCH_CANCELLED: &str = "the fetch was cancelled";
pub(crate) const DIFF_CANCELLED: &str = "the diff was cancelled";
pub(crate) const HOST_CANCELLED: &str = "the host cancelled this call";
pub(crate) const NO_ANSWER: &str = "the host returned no answer";
pub(crate) const CALLER_CANCELLED: &str = "the caller cancelled this call";
pub(crate) const RUN_ENDED: &str = "the run that these tools belong to has ended";
pub(crate) const STDIN_NOT_READ: &str = "the command does not read its input";
pub(crate) const STDIN_CANCELLED: &str = "the input was cancelled";
pub(crate) const OUTPUT_NOT_STORED: &str = "The rest was not kept";

pub(crate) const ENCODING_CANNOT_HOLD_TEXT: &str = "the file is neither UTF-8 nor UTF-16 and its \
     encoding does not have all these letters; nothing was written. Convert the file with a \
     command first, e.g. iconv";
pub(crate) const ENCODING_UNKNOWN: &str =
    "the file is in no encoding this client knows: an edit would damage it";
pub(crate) const HARD_LINKS: &str = "the file has several names (hard links) and cannot be \
     replaced here; nothing was written. Copy it to a new file first";
pub(crate) const GIT_TIMEOUT: &str = "git took too long";
/// The prompt of a host's fetch tool that has a model read the page.
pub(crate) const FETCH_WHOLE_PAGE: &str =
    "Return the complete text of this page as Markdown, without comments of your own.";
pub(crate) const ONLY_HTTP: &str = "only http and https are fetched";

pub(crate) const MCP_CONNECTING: &str =
    "it is being connected; its tools are available when it is connected";
pub(crate) const MCP_SIGN_IN: &str =
    "it wants a sign-in, which this client cannot do; put a token into its headers";
pub(crate) const MCP_REFUSED: &str = "it could not be connected";
pub(crate) const MCP_TOO_MANY_TOOLS: &str = "its list of tools is longer than 16 MiB";
pub(crate) const MCP_ENDED: &str = "it has ended";
pub(crate) const MCP_NEEDS_INPUT: &str =
    "the tool asks for input, which this client cannot provide";
pub(crate) const MCP_NO_RESOURCES: &str = "this client cannot read such resources";
pub(crate) const MCP_RESOURCE_NOT_SAVED: &str =
    "this client does not save it; read it without a path";
pub(crate) const UNREADABLE_IMAGE: &str = "[an image that cannot be read]";
pub(crate) const UNKNOWN_CONTENT: &str = "[content of a kind this client does not know]";

/// The description of a host's tool that has none.
pub(crate) fn default_description(tool: &str) -> String {
    format!("Run pi tool {tool}")
}

/// The description of a host's tool, which is offered under another name.
pub(crate) fn offered_description(description: &str, offered: &str, tool: &str) -> String {
    format!(
        "{description}\n\nCall it as `{offered}`; the user's editor runs its tool `{tool}` and returns the result."
    )
}

/// The error of a call whose result from the host is not a result.
pub fn invalid_host_answer(error: impl Display) -> String {
    format!("the host's answer is not a tool result: {error}")
}

/// The error of a call of a tool that is not offered.
pub(crate) fn no_such_tool(name: &str, known: &str) -> String {
    format!("there is no tool {name:?}; available: {known}")
}

/// The answer of the user, as the result of a question.
pub(crate) fn user_answered(answers: impl Display) -> String {
    format!("User answered: {answers}")
}

/// The error of a call that the host did not answer before the deadline.
pub(crate) fn host_timed_out(limit: Duration) -> String {
    format!("the host did not answer within {} s", limit.as_secs())
}

/// The error of a tool of an MCP server that did not answer in time.
pub(crate) fn mcp_tool_timed_out(limit: Duration) -> String {
    format!("the tool did not answer within {} s", limit.as_secs())
}

/// Why an MCP server is not connected: its program cannot be started.
pub(crate) fn mcp_not_started(error: impl Display) -> String {
    format!("its command cannot be started: {error}")
}

/// Why an MCP server is not connected: it did not answer in time.
pub(crate) fn mcp_timed_out(limit: Duration) -> String {
    format!("it did not answer within {} s", limit.as_secs())
}

/// The state of an MCP server without a connection.
pub(crate) fn mcp_not_connected(reason: &str) -> String {
    format!("This MCP server is not connected: {reason}.")
}

/// An error about one of the user's MCP servers.
pub(crate) fn mcp_server(name: &str, problem: &str) -> String {
    format!("the MCP server {name:?}: {problem}")
}

/// Replaces the answer of an MCP server that is too long.
pub(crate) fn mcp_answer_too_long(mebibytes: usize) -> String {
    format!(
        "the answer of the MCP server is longer than {mebibytes} MiB, which is the limit; ask for less of it"
    )
}

/// The error when too many commands are being executed.
pub(crate) fn too_many_commands(limit: usize) -> String {
    format!(
        "{limit} commands are being executed, which is the limit; the command was not executed. \
         Wait for one to end, or end one in the background"
    )
}

/// The error of a file that could be neither replaced nor created.
pub(crate) fn file_not_created(error: impl Display) -> String {
    format!("no new file can be put there: {error}")
}

/// The error of a file that is too large to be read at once.
pub(crate) fn file_too_large(size: u64, limit: u64) -> String {
    format!("the file has {size} bytes; at most {limit} are read at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_of_single_tools() {
        let texts = [
            QUESTION_DESCRIPTION.into(),
            NO_QUESTION.into(),
            UI_UNAVAILABLE.into(),
            QUESTION_CANCELLED.into(),
            default_description("look"),
            offered_description("Looks.", "pi__look", "look"),
            TOOL_CRASHED.into(),
            CALL_CANCELLED.into(),
            REQUEST_CANCELLED.into(),
            READ_CANCELLED.into(),
            SEARCH_CANCELLED.into(),
            FETCH_CANCELLED.into(),
            DIFF_CANCELLED.into(),
            HOST_CANCELLED.into(),
            CALLER_CANCELLED.into(),
            RUN_ENDED.into(),
            NO_ANSWER.into(),
            invalid_host_answer("missing field `content`"),
            no_such_tool("pi__lock", "pi__look"),
            user_answered("yes"),
            host_timed_out(Duration::from_secs(60)),
            ENCODING_CANNOT_HOLD_TEXT.into(),
            ENCODING_UNKNOWN.into(),
            HARD_LINKS.into(),
            file_not_created("not a directory"),
            file_too_large(9, 8),
            too_many_commands(64),
            OUTPUT_NOT_STORED.into(),
            STDIN_NOT_READ.into(),
            STDIN_CANCELLED.into(),
            GIT_TIMEOUT.into(),
            ONLY_HTTP.into(),
            FETCH_WHOLE_PAGE.into(),
            mcp_not_connected(MCP_ENDED),
            mcp_not_connected(&mcp_not_started("not found")),
            mcp_not_connected(&mcp_timed_out(Duration::from_secs(60))),
            mcp_not_connected(MCP_SIGN_IN),
            mcp_not_connected(MCP_REFUSED),
            mcp_not_connected(MCP_TOO_MANY_TOOLS),
            mcp_server("docs", MCP_CONNECTING),
            mcp_tool_timed_out(Duration::from_secs(60)),
            MCP_NEEDS_INPUT.into(),
            MCP_NO_RESOURCES.into(),
            MCP_RESOURCE_NOT_SAVED.into(),
            mcp_answer_too_long(4),
            UNREADABLE_IMAGE.into(),
            UNKNOWN_CONTENT.into(),
        ];
        insta::assert_snapshot!(texts.join("\n---\n"));
    }
}
