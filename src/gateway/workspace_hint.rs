//! The folder that a client works in: from a header, or from what coding agents say about their
//! environment at the beginning of a conversation.

use std::path::PathBuf;

use http::HeaderMap;

use super::api_error::ApiError;
use agent::conversation::transcript::Transcript;
use agent::message::{Content, Message};

/// The header with the folder.
const HEADER: &str = "x-workspace";
/// How clients introduce their folder, in lower case.
const LABELS: [&str; 7] = [
    "primary working directory:",
    "current working directory:",
    "working directory:",
    "i'm currently working in the directory:",
    "workspace root folder:",
    "current working directory (",
    "<cwd>",
];
/// How many messages, and how much of each, may contain it.
const MESSAGES: usize = 3;
const MAX_LENGTH: usize = 256 * 1024;

/// Returns the folder; `None` if the client does not say it.
pub(super) fn find(
    headers: &HeaderMap,
    transcript: &Transcript,
) -> Result<Option<PathBuf>, ApiError> {
    if let Some(header) = headers.get(HEADER) {
        let folder = header.to_str().ok().and_then(folder);
        return match folder {
            Some(folder) => Ok(Some(folder)),
            None => Err(ApiError::field(HEADER, "expected an absolute path")),
        };
    }
    // Also what a program adds: Claude Code describes the environment in a later system message.
    let inputs = transcript.messages.iter();
    let inputs = inputs.filter(|message| message.as_tool_result().is_none());
    let content = inputs
        .map(Message::content)
        .filter(|content| !content.is_empty())
        .take(MESSAGES)
        .flatten();
    let texts = content.filter_map(|part| match part {
        Content::Text(text) => Some(text.as_str()),
        Content::Image { .. } => None,
    });
    let mut texts = std::iter::once(transcript.system.as_str()).chain(texts);
    Ok(texts.find_map(in_text))
}

fn in_text(text: &str) -> Option<PathBuf> {
    let mut length = 0;
    let mut near = text.lines().take_while(|line| {
        length += line.len();
        length <= MAX_LENGTH
    });
    near.find_map(in_line)
}

/// Returns the folder that a line names. Only ASCII is lowered, so that positions stay the same.
fn in_line(line: &str) -> Option<PathBuf> {
    let lower = line.to_ascii_lowercase();
    LABELS.iter().find_map(|label| {
        let at = lower.find(label)?;
        // The label begins the line, except for signs and numbers of lists, headings and tags.
        if lower[..at].chars().any(char::is_alphabetic) {
            return None;
        }
        let rest = &line[at + label.len()..];
        let end = if *label == "<cwd>" {
            rest.find("</cwd>")?
        } else if label.ends_with('(') {
            rest.find(')')?
        } else {
            rest.len()
        };
        folder(rest[..end].trim().trim_matches(['`', '"', '\'']))
    })
}

fn folder(text: &str) -> Option<PathBuf> {
    let is_path = text.starts_with('/') && text.len() < 4096 && !text.contains(char::is_control);
    is_path.then(|| PathBuf::from(text))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent::message::MessageKind;

    fn found(system: &str, user: &str) -> Option<String> {
        let transcript = Transcript {
            system: system.into(),
            tools: Vec::new(),
            messages: vec![Message::user(user)],
        };
        let folder = find(&HeaderMap::new(), &transcript).unwrap();
        folder.map(|folder| folder.display().to_string())
    }

    #[test]
    fn coding_agents_name_their_folder() {
        let says = |folder: &str| Some(folder.to_owned());
        let claude = "<env>\nWorking directory: /home/me/a b\nIs directory a git repo: Yes\n</env>";
        assert_eq!(found(claude, "go"), says("/home/me/a b"));
        let claude = "# Environment\n - Primary working directory: /w\n - Platform: linux";
        assert_eq!(found(claude, "go"), says("/w"));
        let opencode = "Here is some useful information.\n<env>\n  Working directory: /o\n</env>";
        assert_eq!(found(opencode, "go"), says("/o"));
        let codex = "<environment_context>\n  <cwd>/c</cwd>\n</environment_context>";
        assert_eq!(found("You are Codex.", codex), says("/c"));
        let qwen = "I'm currently working in the directory: /q\nHere is the folder structure";
        assert_eq!(found("", qwen), says("/q"));
        let cline = "# Current Working Directory (/l) Files\na.txt";
        assert_eq!(found("", cline), says("/l"));
        let cline = "1. Platform: linux\n4. Working Directory: /m\n";
        assert_eq!(found(cline, "go"), says("/m"));
        let added = Content::Text(" - Primary working directory: /n\n".into());
        let transcript = Transcript {
            messages: vec![
                Message::user("go"),
                Message::new(MessageKind::Custom(vec![added])),
            ],
            ..Transcript::default()
        };
        let folder = find(&HeaderMap::new(), &transcript).unwrap();
        assert_eq!(folder, Some(PathBuf::from("/n")));
        assert_eq!(
            found("Never change the working directory: /etc", "go"),
            None
        );
        assert_eq!(found("Working directory: relative", "go"), None);
    }

    #[test]
    fn a_header_is_used_first_and_checked() {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, "/h".parse().unwrap());
        let found = find(&headers, &Transcript::default()).unwrap();
        assert_eq!(found, Some(PathBuf::from("/h")));
        headers.insert(HEADER, "h".parse().unwrap());
        let error = find(&headers, &Transcript::default()).unwrap_err();
        assert_eq!(error.param(), Some(HEADER));
    }
}
