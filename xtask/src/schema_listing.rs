//! Tables of Cursor's messages: our own, and listings extracted from a newer client.
//!
//! A listing is text. A line that starts with a message's full name is followed by its fields in
//! indented lines, as `number name type [label]`. Enums start with `enum`, comments with `#`.

use std::collections::BTreeMap;
use std::fmt;

use prost_reflect::{Cardinality, FieldDescriptor, Kind};

use cursor_proto::drift::schema;

/// The largest valid field number.
const MAX_FIELD_NUMBER: u32 = (1 << 29) - 1;

/// Messages and enums by full name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct SchemaTable {
    /// Messages by full name, and their fields by name.
    pub(crate) messages: BTreeMap<String, BTreeMap<String, Field>>,
    /// Enums by full name, and their values by name.
    pub(crate) enums: BTreeMap<String, BTreeMap<String, i32>>,
}

/// A field of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Field {
    pub(crate) number: u32,
    /// The type in the syntax of listings: `string`, `enum a.B`, `a.C`, `map<string,a.C>`.
    pub(crate) kind: String,
    /// Whether it is single, repeated or part of a oneof.
    pub(crate) label: Label,
}

/// Whether a field is single, repeated or part of a oneof.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Label {
    /// A single field.
    Single,
    /// A repeated field.
    Repeated,
    /// A member of this oneof group.
    Oneof(String),
}

/// Why a text is not a listing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ListingError {
    /// A line is malformed.
    #[error("line {line}: {problem}")]
    Line {
        /// The line number, from 1.
        line: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// The listing contains none of Cursor's messages.
    #[error("there is no message of agent.v1 or aiserver.v1 in it")]
    Empty,
}

impl SchemaTable {
    /// Returns the table of the messages this version knows.
    pub(crate) fn ours() -> Self {
        let mut table = Self::default();
        let Some(pool) = schema() else {
            return table;
        };
        for message in pool.all_messages() {
            if !message.is_map_entry() && is_cursors(message.full_name()) {
                let fields = message.fields();
                let fields = fields.map(|field| (field.name().to_owned(), declared(&field)));
                let name = message.full_name().to_owned();
                table.messages.insert(name, fields.collect());
            }
        }
        for kind in pool.all_enums().filter(|kind| is_cursors(kind.full_name())) {
            let values = kind.values();
            let values = values.map(|value| (value.name().to_owned(), value.number()));
            let name = kind.full_name().to_owned();
            table.enums.insert(name, values.collect());
        }
        table
    }

    /// Parses a listing.
    pub(crate) fn parse(text: &str) -> Result<Self, ListingError> {
        let mut table = Self::default();
        let mut owner = Owner::None;
        for (index, line) in text.lines().enumerate() {
            let at = |problem: String| ListingError::Line {
                line: index + 1,
                problem,
            };
            if line.starts_with("##########") {
                owner = Owner::None;
            }
            let bare = line.split(" #").next().unwrap_or_default().trim();
            if bare.is_empty() || bare.starts_with('#') {
                continue;
            }
            if line.starts_with([' ', '\t']) {
                table.member(&mut owner, bare).map_err(at)?;
            } else {
                owner = table.begin(bare).map_err(at)?;
            }
        }
        if table.messages.keys().any(|name| is_cursors(name)) {
            Ok(table)
        } else {
            Err(ListingError::Empty)
        }
    }

    /// Parses a line that starts a message or enum, and returns the owner of the following members.
    fn begin(&mut self, line: &str) -> Result<Owner, String> {
        if line.starts_with('(') {
            return Ok(Owner::None);
        }
        let (name, is_enum) = match line.strip_prefix("enum ") {
            Some(name) => (name.trim(), true),
            None => (line, false),
        };
        if !is_full_name(name) {
            return Err(format!(
                "expected a message's full name, found {}",
                shown(line)
            ));
        }
        let name = name.to_owned();
        let is_duplicate = if is_enum {
            self.enums.insert(name.clone(), BTreeMap::new()).is_some()
        } else {
            self.messages
                .insert(name.clone(), BTreeMap::new())
                .is_some()
        };
        match (is_duplicate, is_enum) {
            (true, _) => Err(format!("{name} is listed twice")),
            (false, true) => Ok(Owner::Enum(name)),
            (false, false) => Ok(Owner::Message(name)),
        }
    }

    /// Parses an indented line, which is a member of `owner`.
    fn member(&mut self, owner: &mut Owner, line: &str) -> Result<(), String> {
        if line.starts_with('(') {
            return Ok(());
        }
        match owner {
            Owner::None => {}
            // A service is listed like a message, with calls instead of fields.
            Owner::Message(name) if line.starts_with("rpc ") => {
                self.messages.remove(name);
                *owner = Owner::None;
            }
            Owner::Message(name) => {
                let (field_name, field) = field(line)?;
                let fields = self.messages.entry(name.clone()).or_default();
                if fields.values().any(|known| known.number == field.number) {
                    return Err(format!("{name} has two fields {}", field.number));
                }
                if fields.insert(field_name.clone(), field).is_some() {
                    return Err(format!("{name} has two fields {field_name}"));
                }
            }
            Owner::Enum(name) => {
                let (number, value) = line.split_once(' ').unwrap_or_default();
                let number = number
                    .parse()
                    .map_err(|_| format!("expected \"number NAME\", found {}", shown(line)))?;
                let values = self.enums.entry(name.clone()).or_default();
                values.insert(value.trim().to_owned(), number);
            }
        }
        Ok(())
    }
}

impl fmt::Display for SchemaTable {
    /// Formats the table as a listing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (message, fields) in &self.messages {
            writeln!(f, "{message}")?;
            for (name, field) in fields {
                write!(f, " {} {name} {}", field.number, field.kind)?;
                match &field.label {
                    Label::Single => writeln!(f)?,
                    Label::Repeated => writeln!(f, " [repeated]")?,
                    Label::Oneof(group) => writeln!(f, " [oneof {group}]")?,
                }
            }
        }
        for (name, values) in &self.enums {
            writeln!(f, "enum {name}")?;
            for (value, number) in values {
                writeln!(f, " {number} {value}")?;
            }
        }
        Ok(())
    }
}

/// The message or enum whose members the indented lines are.
enum Owner {
    None,
    Message(String),
    Enum(String),
}

/// Returns whether a message is Cursor's, not Google's.
pub(crate) fn is_cursors(name: &str) -> bool {
    name.starts_with("agent.v1.") || name.starts_with("aiserver.v1.")
}

fn is_full_name(name: &str) -> bool {
    let is_word = |word: &str| {
        word.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            && word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    name.contains('.') && name.split('.').all(is_word)
}

/// Returns the quoted beginning of a malformed line, which may be of any length.
fn shown(line: &str) -> String {
    format!("{:?}", line.chars().take(40).collect::<String>())
}

fn field(line: &str) -> Result<(String, Field), String> {
    let wrong = || format!("expected \"number name type\", found {}", shown(line));
    let mut words = line.splitn(3, ' ');
    let (Some(number), Some(name), Some(rest)) = (words.next(), words.next(), words.next()) else {
        return Err(wrong());
    };
    let number: u32 = number.parse().map_err(|_| wrong())?;
    if !(1..=MAX_FIELD_NUMBER).contains(&number) {
        return Err(format!("{number} is not a valid field number"));
    }
    let labelled = rest
        .strip_suffix(']')
        .and_then(|rest| rest.rsplit_once(" ["));
    let (kind, label) = labelled.unwrap_or((rest, ""));
    let label = match label.strip_prefix("oneof ") {
        Some(group) => Label::Oneof(group.to_owned()),
        None if label == "repeated" => Label::Repeated,
        None => Label::Single,
    };
    let kind = kind.trim().to_owned();
    Ok((
        name.to_owned(),
        Field {
            number,
            kind,
            label,
        },
    ))
}

fn declared(field: &FieldDescriptor) -> Field {
    let kind = match field.kind() {
        Kind::Message(entry) if entry.is_map_entry() => format!(
            "map<{},{}>",
            kind_name(&entry.map_entry_key_field().kind()),
            kind_name(&entry.map_entry_value_field().kind())
        ),
        kind => kind_name(&kind),
    };
    let group = field
        .containing_oneof()
        .filter(|group| !group.is_synthetic());
    let label = match (group, field.cardinality()) {
        (Some(group), _) => Label::Oneof(group.name().to_owned()),
        (None, Cardinality::Repeated) if !field.is_map() => Label::Repeated,
        (None, _) => Label::Single,
    };
    Field {
        number: field.number(),
        kind,
        label,
    }
}

fn kind_name(kind: &Kind) -> String {
    match kind {
        Kind::Message(message) => message.full_name().to_owned(),
        Kind::Enum(kind) => format!("enum {}", kind.full_name()),
        scalar => format!("{scalar:?}").to_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(text: &str) -> String {
        SchemaTable::parse(text).unwrap_err().to_string()
    }

    #[test]
    fn messages_and_enums_are_parsed_and_other_lines_ignored() {
        let text = "# remark\n\n########## 1. SERVICES\nagent.v1.S   # source\n rpc Run a.B -> a.C\n\
                    ########## 2. MESSAGES\nagent.v1.M\n 1 id string\n 2 of map<string,a.C> # remark\n \
                    3 mode enum a.E [optional]\n 4 all a.C [repeated]\n 5 one a.C [oneof message]\n \
                    6 odd (message {1 id string}) [repeated]\n # remark\n(a message without a name)\n 1 x string\n\
                    agent.v1.N\n (no fields)\nenum agent.v1.E\n 0 E_NONE\n########## 3. NOTES\n anything at all\n";
        let table = SchemaTable::parse(text).unwrap();
        let names: Vec<_> = table.messages.keys().collect();
        assert_eq!(names, ["agent.v1.M", "agent.v1.N"]);
        let message = &table.messages["agent.v1.M"];
        let shown: Vec<_> = message
            .iter()
            .map(|(name, field)| {
                (
                    name.as_str(),
                    field.number,
                    field.kind.as_str(),
                    &field.label,
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                ("all", 4, "a.C", &Label::Repeated),
                ("id", 1, "string", &Label::Single),
                ("mode", 3, "enum a.E", &Label::Single),
                ("odd", 6, "(message {1 id string})", &Label::Repeated),
                ("of", 2, "map<string,a.C>", &Label::Single),
                ("one", 5, "a.C", &Label::Oneof("message".into())),
            ]
        );
        assert_eq!(table.enums["agent.v1.E"]["E_NONE"], 0);
    }

    #[test]
    fn errors_name_the_malformed_line() {
        let cases = [
            ("", "there is no message of agent.v1 or aiserver.v1 in it"),
            (
                "other.v1.M\n 1 a string\n",
                "there is no message of agent.v1 or aiserver.v1 in it",
            ),
            (
                "{\"a\": 1}\n",
                "line 1: expected a message's full name, found \"{\\\"a\\\": 1}\"",
            ),
            (
                "agent.v1.M\n one id string\n",
                "line 2: expected \"number name type\", found \"one id string\"",
            ),
            (
                "agent.v1.M\n 1 id\n",
                "line 2: expected \"number name type\", found \"1 id\"",
            ),
            (
                "agent.v1.M\n 0 id string\n",
                "line 2: 0 is not a valid field number",
            ),
            (
                "agent.v1.M\n 1 id string\n 1 of string\n",
                "line 3: agent.v1.M has two fields 1",
            ),
            (
                "agent.v1.M\n 1 id string\n 2 id string\n",
                "line 3: agent.v1.M has two fields id",
            ),
            (
                "agent.v1.M\nagent.v1.M\n",
                "line 2: agent.v1.M is listed twice",
            ),
            (
                "enum agent.v1.E\n NONE\n",
                "line 2: expected \"number NAME\", found \"NONE\"",
            ),
        ];
        for (text, wanted) in cases {
            assert_eq!(problem(text), wanted);
        }
        assert!(problem(&"x".repeat(1 << 20)).len() < 200);
    }

    #[test]
    fn our_own_table_uses_the_syntax_of_listings() {
        let ours = SchemaTable::ours();
        assert!(ours.messages.len() > 300, "{}", ours.messages.len());
        let exec = &ours.messages["agent.v1.ExecServerMessage"]["read_args"];
        assert_eq!(exec.kind, "agent.v1.ReadArgs");
        assert_eq!(exec.label, Label::Oneof("message".into()));
        let args = &ours.messages["agent.v1.McpArgs"]["args"];
        assert_eq!(args.kind, "map<string,google.protobuf.Value>");
        assert_eq!(args.label, Label::Single);
        assert_eq!(ours.enums["agent.v1.AgentMode"]["AGENT_MODE_PLAN"], 3);
        assert_eq!(SchemaTable::parse(&ours.to_string()), Ok(ours));
    }
}
