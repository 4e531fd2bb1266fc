//! `cursor-sidecar schema`: prints the protocol for hosts, and compares our copy of Cursor's
//! protocol with a newer one.

use std::io::Write as _;
use std::path::PathBuf;

use crate::rpc;
use agent::run::newer::{self, Comparison, Difference, ListingError, Rest};

/// Print the JSON Schema of the JSON-RPC protocol, or compare our copy of Cursor's messages.
#[derive(Debug, clap::Args)]
pub struct SchemaCommand {
    /// Compare with a listing of newer messages; exits with 1 if something breaks.
    ///
    /// Each message's full name starts a line; its fields follow, indented, as "number name type
    /// [label]".
    #[arg(long, value_name = "FILE")]
    compare: Option<PathBuf>,
    /// Print the comparison as JSON.
    #[arg(long, requires = "compare")]
    json: bool,
}

/// Why the command failed.
#[derive(Debug, thiserror::Error)]
pub enum SchemaError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: std::io::Error,
    },
    /// The file is not a listing of messages.
    #[error("{} is no listing of messages: {source}", path.display())]
    Listing {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: ListingError,
    },
    /// Standard output is closed.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

impl SchemaCommand {
    /// Prints the schema or the comparison. Returns whether this version works with a server of the
    /// compared schema.
    pub fn run(self) -> Result<bool, SchemaError> {
        let mut out = std::io::stdout();
        let Some(path) = self.compare else {
            writeln!(out, "{:#}", rpc::schema())?;
            return Ok(true);
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(source) => return Err(SchemaError::Unreadable { path, source }),
        };
        let comparison = match newer::compare_with(&text) {
            Ok(comparison) => comparison,
            Err(source) => return Err(SchemaError::Listing { path, source }),
        };
        if self.json {
            let json = serde_json::to_value(&comparison).unwrap_or_default();
            writeln!(out, "{json:#}")?;
        } else {
            write!(out, "{}", page(&comparison))?;
        }
        Ok(!comparison.breaks())
    }
}

fn page(comparison: &Comparison) -> String {
    let mut page = String::new();
    let mut part = |title: &str, lines: Vec<String>| {
        if !lines.is_empty() {
            page.push_str(&format!("{title}: {}\n", lines.len()));
            page.extend(lines.iter().map(|line| format!("  {line}\n")));
        }
    };
    let lines = |differences: &[Difference]| {
        let line = |Difference { what, how }: &Difference| format!("{what} {how}");
        differences.iter().map(line).collect::<Vec<_>>()
    };
    part("breaking", lines(&comparison.breaking));
    part("messages we use that are gone", comparison.gone.clone());
    part("new requests we would refuse", lines(&comparison.refused));
    part(
        "not declared by us, in messages we read",
        lines(&comparison.unread),
    );
    part(
        "not in the listing, not compared",
        comparison.not_compared.clone(),
    );
    page.push_str(&rest(comparison.rest));
    let compared = comparison.compared;
    let conclusion = if comparison.breaks() {
        "this version has to change"
    } else {
        "nothing breaks"
    };
    let (messages, fields) = (compared.messages, compared.fields);
    page.push_str(&format!(
        "{messages} messages with {fields} fields compared: {conclusion}\n"
    ));
    page
}

/// Returns the counts that are not zero, in one line.
fn rest(rest: Rest) -> String {
    let counts = [
        (
            rest.new_fields_in_what_we_send,
            "new fields in messages we only send",
        ),
        (rest.fields_gone, "fields gone"),
        (rest.fields_renamed, "fields renamed"),
        (rest.new_enum_values, "new enum values"),
        (rest.messages_we_do_not_use, "messages we do not use"),
    ];
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if counts.is_empty() {
        String::new()
    } else {
        format!("also: {}\n", counts.join(", "))
    }
}
