//! What a running shell prints, kept for results that come empty.
//!
//! Output told without the id of its call belongs to a shell only if exactly one runs; once
//! two run at a time, what the running ones printed is nobody's for good.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::Activity;
use super::text;

/// Lines about a running shell that are shown.
const MOST_LINES: usize = 3;
/// Characters of such a line.
const LINE: usize = 160;
/// Bytes kept of a stream; a transcript shows fewer.
const MOST_BYTES: usize = 128 * 1024;

/// Which stream of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// The shells that run and what they printed.
#[derive(Debug, Default)]
pub struct Shells {
    running: BTreeMap<String, Printed>,
}

#[derive(Debug, Default)]
struct Printed {
    stdout: String,
    stderr: String,
    /// How far the streams have been looked at for lines.
    seen: [usize; 2],
    lines: usize,
    whose: Whose,
}

/// How sure it is that output belongs to its call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Whose {
    /// It was the only one.
    #[default]
    Alone,
    /// Each piece named it.
    Named,
    /// Nobody knows.
    Unclear,
}

/// Takes secrets out of a text.
type Scrub<'a> = &'a dyn Fn(&str) -> String;

impl Printed {
    fn add(&mut self, stream: Stream, data: &str) {
        let kept = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        let room = MOST_BYTES.saturating_sub(kept.len());
        let end = (0..=data.len().min(room))
            .rev()
            .find(|at| data.is_char_boundary(*at));
        kept.push_str(&data[..end.unwrap_or(0)]);
    }

    /// A line to show for new output, the first few times. Only whole lines are shown, and
    /// secrets are looked for in all there is of the stream, because one may come in pieces.
    fn line(&mut self, stream: Stream, scrub: Scrub<'_>) -> Option<String> {
        let (kept, seen, name) = match stream {
            Stream::Stdout => (&self.stdout, &mut self.seen[0], "stdout"),
            Stream::Stderr => (&self.stderr, &mut self.seen[1], "stderr"),
        };
        let end = kept.rfind('\n').map_or(0, |at| at + 1);
        let start = std::mem::replace(seen, end);
        if self.lines >= MOST_LINES || start >= end || kept[start..end].trim().is_empty() {
            return None;
        }
        self.lines += 1;
        let (before, all) = (scrub(&kept[..start]), scrub(&kept[..end]));
        // Where they differ, a secret reaches from the earlier output into the new one.
        let new = all.strip_prefix(&before)?;
        let first = text::first_line(new)?;
        Some(format!(
            "Cursor shell {name}: {}\n",
            text::line(first, LINE)
        ))
    }
}

impl Shells {
    /// A shell starts.
    pub fn started(&mut self, id: &str) {
        self.running.entry(id.to_owned()).or_default();
    }

    /// Output without a name. Gives a line to show.
    pub fn printed(&mut self, stream: Stream, data: &str, scrub: Scrub<'_>) -> Option<String> {
        if data.is_empty() {
            return None;
        }
        if self.running.len() > 1 {
            for printed in self
                .running
                .values_mut()
                .filter(|p| p.whose == Whose::Alone)
            {
                *printed = Printed {
                    whose: Whose::Unclear,
                    ..Printed::default()
                };
            }
        }
        let (_, printed) = self.running.first_key_value()?;
        if self.running.len() != 1 || printed.whose != Whose::Alone {
            return None;
        }
        let printed = self.running.values_mut().next()?;
        printed.add(stream, data);
        printed.line(stream, scrub)
    }

    /// Output that names its call. Gives a line to show.
    pub fn printed_by(
        &mut self,
        id: &str,
        stream: Stream,
        data: &str,
        scrub: Scrub<'_>,
    ) -> Option<String> {
        let printed = self.running.get_mut(id)?;
        if printed.whose != Whose::Named {
            let lines = printed.lines;
            *printed = Printed {
                whose: Whose::Named,
                lines,
                ..Printed::default()
            };
        }
        printed.add(stream, data);
        printed.line(stream, scrub)
    }

    /// A shell is over: an empty success gets what was seen of its output.
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
        let told = |key: &str| {
            let text = result.get("value").and_then(|value| value[key].as_str());
            text.is_some_and(usable)
        };
        if result.get("status").and_then(Json::as_str) != Some("success")
            || told("stdout")
            || told("stderr")
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
    fn nothing_printed_says_nothing_about_whose_it_is() {
        let mut shells = Shells::default();
        shells.started("1");
        shells.printed(Stream::Stdout, "a", &str::to_owned);
        shells.started("2");
        shells.printed(Stream::Stdout, "", &str::to_owned);
        let empty = json!({"name": "shell", "result": {"status": "success", "value": {}}});
        let merged = shells.completed("1", Activity::read(&empty));
        assert_eq!(merged.result.unwrap()["value"]["stdout"], "a");
    }
    #[test]
    fn a_secret_in_pieces_is_not_shown() {
        let scrub = |text: &str| text.replace("otters and newts", "***");
        let mut shells = Shells::default();
        shells.started("1");
        let mut shown = String::new();
        for piece in [
            "key: ott",
            "ers and ",
            "newts\nnext",
            " line\nan unfinished one",
        ] {
            if let Some(line) = shells.printed(Stream::Stdout, piece, &scrub) {
                shown.push_str(&line);
            }
        }
        assert_eq!(
            shown,
            "Cursor shell stdout: key: ***\nCursor shell stdout: next line\n"
        );
    }

    #[test]
    fn a_secret_of_several_lines_is_not_shown() {
        let scrub = |text: &str| {
            crate::diag::scrub::Scrubber::default()
                .scrub(text)
                .into_owned()
        };
        let mut shells = Shells::default();
        shells.started("1");
        for piece in ["-----BEGIN PRIVATE KEY-----\n", "MIIEvQ\n", "IBADAN\n"] {
            let line = shells.printed(Stream::Stdout, piece, &scrub);
            let line = line.unwrap_or_default();
            assert!(!line.contains("MIIE") && !line.contains("IBAD"), "{line}");
        }
    }
}
