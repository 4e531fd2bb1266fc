//! Collects the output of running shells, for results that arrive without it.
//!
//! Output without a call id is attributed to a shell only if exactly one is running. Once two run at
//! the same time, such output of both is discarded for good.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::Activity;
use super::text;

/// Maximum number of progress lines per shell.
const MAX_LINES: usize = 3;
/// Maximum length of a progress line.
const MAX_LINE_CHARS: usize = 160;
/// Bytes stored per stream; a transcript shows fewer.
const MAX_BYTES: usize = 128 * 1024;

/// An output stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

/// Bytes of the shortest text that is worth hiding.
const SHORTEST_SECRET: usize = 12;
/// Different characters that a secret has at least.
const SECRET_VARIETY: usize = 5;

/// The running shells and their output.
#[derive(Debug, Default)]
pub struct ShellOutputs {
    running: BTreeMap<String, ShellOutput>,
}

#[derive(Debug, Default)]
struct ShellOutput {
    stdout: String,
    stderr: String,
    /// How far each stream has been searched for lines.
    seen: [usize; 2],
    lines: usize,
    owner: OutputOwner,
}

/// How output was attributed to a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum OutputOwner {
    /// It was the only running shell.
    #[default]
    OnlyShell,
    /// The output has the id of the call.
    Named,
    /// Several shells were running, so it is unknown.
    Ambiguous,
}

/// Removes secrets from a text.
type Redact<'a> = &'a dyn Fn(&str) -> String;

impl ShellOutput {
    fn add(&mut self, stream: OutputStream, data: &str) {
        let kept = match stream {
            OutputStream::Stdout => &mut self.stdout,
            OutputStream::Stderr => &mut self.stderr,
        };
        let room = MAX_BYTES.saturating_sub(kept.len());
        let end = (0..=data.len().min(room))
            .rev()
            .find(|at| data.is_char_boundary(*at));
        kept.push_str(&data[..end.unwrap_or(0)]);
    }

    /// Returns a progress line for new output, the first few times. A secret may arrive in
    /// pieces, so the whole stream is redacted, and a word that may be the beginning of one is
    /// held back until it ends.
    fn line(&mut self, stream: OutputStream, redact: Redact<'_>) -> Option<String> {
        let (kept, seen, name) = match stream {
            OutputStream::Stdout => (&self.stdout, &mut self.seen[0], "stdout"),
            OutputStream::Stderr => (&self.stderr, &mut self.seen[1], "stderr"),
        };
        let start = *seen;
        if self.lines >= MAX_LINES || kept[start..].trim().is_empty() {
            return None;
        }
        let (mut end, mut all) = (kept.len(), redact(kept));
        let held = start.max(end - unfinished_word(kept));
        if held < end {
            let earlier = redact(&kept[..held]);
            // If they differ, the word is redacted, and what follows will be too.
            if all.strip_prefix(&earlier) == Some(&kept[held..]) {
                (end, all) = (held, earlier);
            }
        }
        if kept[start..end].trim().is_empty() {
            return None;
        }
        *seen = end;
        self.lines += 1;
        // If they differ, a secret extends from the earlier output into the new one.
        let before = redact(&kept[..start]);
        let new = all.strip_prefix(&before)?;
        let first = text::first_line(new)?;
        Some(format!(
            "Cursor shell {name}: {}\n",
            text::single_line(first, MAX_LINE_CHARS)
        ))
    }
}

/// Returns the bytes of the last word of a text if more of it may follow and it may be the beginning
/// of a secret: long, and of many characters, unlike the line of a table or a progress bar.
fn unfinished_word(text: &str) -> usize {
    let last = text.rsplit(char::is_whitespace).next().unwrap_or_default();
    let variety = last.chars().collect::<BTreeSet<char>>().len();
    if last.len() < SHORTEST_SECRET || variety < SECRET_VARIETY {
        return 0;
    }
    last.len()
}

impl ShellOutputs {
    /// Records that a shell starts.
    pub fn started(&mut self, id: &str) {
        self.running.entry(id.to_owned()).or_default();
    }

    /// Records output without a call id. Returns a progress line.
    pub fn printed(
        &mut self,
        stream: OutputStream,
        data: &str,
        redact: Redact<'_>,
    ) -> Option<String> {
        if data.is_empty() {
            return None;
        }
        if self.running.len() > 1 {
            for printed in self
                .running
                .values_mut()
                .filter(|p| p.owner == OutputOwner::OnlyShell)
            {
                *printed = ShellOutput {
                    owner: OutputOwner::Ambiguous,
                    ..ShellOutput::default()
                };
            }
        }
        let (_, printed) = self.running.first_key_value()?;
        if self.running.len() != 1 || printed.owner != OutputOwner::OnlyShell {
            return None;
        }
        let printed = self.running.values_mut().next()?;
        printed.add(stream, data);
        printed.line(stream, redact)
    }

    /// Records output with a call id. Returns a progress line.
    pub fn printed_by(
        &mut self,
        id: &str,
        stream: OutputStream,
        data: &str,
        redact: Redact<'_>,
    ) -> Option<String> {
        let printed = self.running.get_mut(id)?;
        if printed.owner != OutputOwner::Named {
            let lines = printed.lines;
            *printed = ShellOutput {
                owner: OutputOwner::Named,
                lines,
                ..ShellOutput::default()
            };
        }
        printed.add(stream, data);
        printed.line(stream, redact)
    }

    /// Ends a shell and adds the collected output to a successful result that has none.
    pub fn completed(&mut self, id: &str, mut activity: Activity) -> Activity {
        let Some(printed) = self.running.remove(id) else {
            return activity;
        };
        let usable = |text: &str| !text.trim().is_empty();
        if !usable(&printed.stdout) && !usable(&printed.stderr) {
            return activity;
        }
        let Some(Json::Object(result)) = &mut activity.result else {
            return activity;
        };
        let has_output = |key: &str| {
            let text = result.get("value").and_then(|value| value[key].as_str());
            text.is_some_and(usable)
        };
        if result.get("status").and_then(Json::as_str) != Some("success")
            || has_output("stdout")
            || has_output("stderr")
        {
            return activity;
        }
        let mut value = match result.get_mut("value").map(Json::take) {
            Some(Json::Object(value)) => value,
            _ => Map::new(),
        };
        value.insert("stdout".into(), printed.stdout.into());
        value.insert("stderr".into(), printed.stderr.into());
        result.insert("value".into(), value.into());
        activity
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn empty_output_does_not_affect_attribution() {
        let mut shells = ShellOutputs::default();
        shells.started("1");
        shells.printed(OutputStream::Stdout, "a", &str::to_owned);
        shells.started("2");
        shells.printed(OutputStream::Stdout, "", &str::to_owned);
        let empty = json!({"name": "shell", "result": {"status": "success", "value": {}}});
        let merged = shells.completed("1", Activity::from_json(&empty));
        assert_eq!(merged.result.unwrap()["value"]["stdout"], "a");
    }

    #[test]
    fn a_secret_in_pieces_is_not_shown() {
        let secret = "crsr_0123456789abcdef";
        let redact = |text: &str| text.replace(secret, "***");
        let mut shells = ShellOutputs::default();
        shells.started("1");
        let pieces = ["key: ", "crsr_0123456", "789abcdef\nnext", " line\n"];
        let mut shown = String::new();
        for piece in pieces {
            if let Some(line) = shells.printed(OutputStream::Stdout, piece, &redact) {
                shown.push_str(&line);
            }
        }
        insta::assert_snapshot!(shown, @r"
        Cursor shell stdout: key:
        Cursor shell stdout: ***
        Cursor shell stdout: line
        ");
    }

    #[test]
    fn a_long_line_is_shown_before_it_ends() {
        let mut shells = ShellOutputs::default();
        shells.started("1");
        let rule = "=".repeat(200);
        let line = shells.printed(OutputStream::Stdout, &rule, &str::to_owned);
        assert!(line.is_some_and(|line| line.starts_with("Cursor shell stdout: ====")));
        // A redacted word needs no more text: whatever follows is redacted with it.
        let scrubber = foundation::scrub::Scrubber::default();
        let redact = |text: &str| scrubber.scrub(text).into_owned();
        let secret = "\ntoken=abcdefghijklmnop";
        let line = shells.printed(OutputStream::Stdout, secret, &redact);
        assert_eq!(
            line.as_deref(),
            Some("Cursor shell stdout: token=[redacted]\n")
        );
        let line = shells.printed(OutputStream::Stdout, "qrst", &redact);
        assert_eq!(line, None);
    }

    #[test]
    fn a_secret_of_several_lines_is_not_shown() {
        let redact = |text: &str| {
            foundation::scrub::Scrubber::default()
                .scrub(text)
                .into_owned()
        };
        let mut shells = ShellOutputs::default();
        shells.started("1");
        for piece in ["-----BEGIN PRIVATE KEY-----\n", "MIIEvQ\n", "IBADAN\n"] {
            let line = shells.printed(OutputStream::Stdout, piece, &redact);
            let line = line.unwrap_or_default();
            assert!(!line.contains("MIIE") && !line.contains("IBAD"), "{line}");
        }
    }
}
