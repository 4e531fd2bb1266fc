//! Compares a newer schema of Cursor's with ours, and reports what it would mean for our runs.
//! Pure: works on two tables.
//!
//! A server that uses the newer schema still gets an answer to everything. The comparison lists
//! which answers would be wrong, which would be rejections, and what we would not read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::schema_listing::{Field, Label, ListingError, SchemaTable, is_cursors};

/// What the server sends on a run.
const SERVER_MESSAGE: &str = "agent.v1.AgentServerMessage";
/// What we send on a run.
const CLIENT_MESSAGE: &str = "agent.v1.AgentClientMessage";
/// State is sent back byte for byte, so its content does not matter.
const CARRIED: &str = "agent.v1.ConversationStateStructure";
/// Messages whose cases are requests, and what happens to an unknown case.
const REQUESTS: &[(&str, &str)] = &[
    ("agent.v1.ExecServerMessage", "would be thrown back"),
    ("agent.v1.InteractionQuery", "would get an empty answer"),
    ("agent.v1.KvServerMessage", "would get an error"),
    (SERVER_MESSAGE, "would be passed over"),
    ("agent.v1.ExecServerControlMessage", "would be passed over"),
];

/// The differences, most important first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SchemaDiff {
    /// The same name has another meaning: we would misread or be misread.
    pub(crate) breaking: Vec<Difference>,
    /// Messages we use that no longer exist.
    pub(crate) gone: Vec<String>,
    /// Requests we would reject.
    pub(crate) refused: Vec<Difference>,
    /// What we would not read in messages that we do read.
    pub(crate) unread: Vec<Difference>,
    /// Counts of all other differences.
    pub(crate) other_changes: OtherChanges,
    /// Packages and nested messages that the listing does not contain.
    pub(crate) not_compared: Vec<String>,
    /// How much was compared.
    pub(crate) compared: Compared,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Difference {
    /// Full name of a field or of an enum value.
    pub(crate) what: String,
    /// How it differs.
    pub(crate) how: String,
}

/// Counts of differences that need no attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OtherChanges {
    /// New fields in messages that we only send.
    pub(crate) new_fields_in_what_we_send: usize,
    /// Fields we declare that no longer exist.
    pub(crate) fields_gone: usize,
    /// Fields with another name but the same encoding.
    pub(crate) fields_renamed: usize,
    /// Unknown values of enums we declare.
    pub(crate) new_enum_values: usize,
    /// Messages we do not declare.
    pub(crate) messages_we_do_not_use: usize,
}

/// How much was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Compared {
    pub(crate) messages: usize,
    pub(crate) fields: usize,
}

impl SchemaDiff {
    /// Returns whether this version must be changed before it can use the newer schema.
    pub(crate) fn breaks(&self) -> bool {
        !self.breaking.is_empty() || !self.gone.is_empty()
    }
}

/// Compares what this version declares with a listing.
pub(crate) fn compare_with(listing: &str) -> Result<SchemaDiff, ListingError> {
    Ok(compare(&SchemaTable::ours(), &SchemaTable::parse(listing)?))
}

fn compare(ours: &SchemaTable, theirs: &SchemaTable) -> SchemaDiff {
    let mut found = SchemaDiff::default();
    let sent_only = sent_only(ours);
    let packages: BTreeSet<&str> = theirs.messages.keys().map(|name| package(name)).collect();
    let reachable_unnamed = reachable_unnamed(ours, theirs);
    let mut not_compared = BTreeSet::new();
    for (name, fields) in &ours.messages {
        let direction = if sent_only.contains(name.as_str()) {
            Direction::Out
        } else {
            Direction::In
        };
        match theirs.messages.get(name) {
            Some(listed) => found.message(name, fields, listed, direction),
            None if !packages.contains(package(name)) => {
                not_compared.insert(package(name).to_owned());
            }
            None if reachable_unnamed.contains(name.as_str()) => {
                not_compared.insert(name.clone());
            }
            None => found.gone.push(name.clone()),
        }
    }
    for (name, values) in &ours.enums {
        if let Some(listed) = theirs.enums.get(name) {
            found.enumeration(name, values, listed);
        }
    }
    let others = theirs.messages.keys().filter(|name| is_cursors(name));
    let others = others.filter(|name| !ours.messages.contains_key(*name));
    found.other_changes.messages_we_do_not_use = others.count();
    found.not_compared = not_compared.into_iter().collect();
    found.refused.sort_by_key(|request| {
        let of = |(message, _): &(&str, &str)| {
            request.what.rsplit_once('.').map(|(owner, _)| owner) == Some(message)
        };
        REQUESTS.iter().position(of)
    });
    found
}

type Fields = BTreeMap<String, Field>;

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    /// We read it.
    In,
    /// We only send it.
    Out,
}

impl SchemaDiff {
    fn message(&mut self, message: &str, ours: &Fields, theirs: &Fields, direction: Direction) {
        self.compared.messages += 1;
        self.compared.fields += ours.len();
        for (name, field) in ours {
            let what = format!("{message}.{name}");
            match theirs.get(name) {
                Some(listed) => self.breaks_by(what, change(field, listed)),
                None => {
                    let successor = theirs
                        .iter()
                        .find(|(_, listed)| listed.number == field.number);
                    self.name_missing(what, field, successor);
                }
            }
        }
        let mut new: Vec<(&String, &Field)> = theirs
            .iter()
            .filter(|(name, _)| !ours.contains_key(*name))
            .filter(|(_, field)| ours.values().all(|known| known.number != field.number))
            .collect();
        new.sort_by_key(|(_, field)| field.number);
        for (name, field) in new {
            self.new_field(message, name, field, direction);
        }
    }

    fn breaks_by(&mut self, what: String, how: Option<String>) {
        self.breaking
            .extend(how.map(|how| Difference { what, how }));
    }

    /// Records a field whose name is not listed; `successor` is the field that now has its number.
    fn name_missing(&mut self, what: String, field: &Field, successor: Option<(&String, &Field)>) {
        match successor {
            None => self.other_changes.fields_gone += 1,
            Some((_, listed)) if change(field, listed).is_none() => {
                self.other_changes.fields_renamed += 1
            }
            Some((name, listed)) => {
                let (number, kind) = (listed.number, &listed.kind);
                let how = format!("its number {number} is now {name}, {kind}");
                self.breaks_by(what, Some(how));
            }
        }
    }

    fn new_field(&mut self, message: &str, name: &str, field: &Field, direction: Direction) {
        let what = format!("{message}.{name}");
        let (number, kind) = (field.number, &field.kind);
        let is_case = matches!(field.label, Label::Oneof(_));
        let request = REQUESTS
            .iter()
            .find(|(owner, _)| is_case && *owner == message);
        match (request, direction) {
            (Some((_, outcome)), _) => self.refused.push(Difference {
                what,
                how: format!("{number}, {kind}: {outcome}"),
            }),
            (None, Direction::In) => self.unread.push(Difference {
                what,
                how: if is_case {
                    format!("{number}, {kind}, a new case")
                } else {
                    format!("{number}, {kind}")
                },
            }),
            (None, Direction::Out) => self.other_changes.new_fields_in_what_we_send += 1,
        }
    }

    fn enumeration(
        &mut self,
        name: &str,
        ours: &BTreeMap<String, i32>,
        theirs: &BTreeMap<String, i32>,
    ) {
        for (value, number) in ours {
            if let Some(listed) = theirs.get(value).filter(|listed| *listed != number) {
                let how = format!("is {listed} there, {number} here");
                self.breaks_by(format!("{name}.{value}"), Some(how));
            }
        }
        let new = theirs.keys().filter(|value| !ours.contains_key(*value));
        self.other_changes.new_enum_values += new.count();
    }
}

/// Returns how two fields with the same name or number differ; `None` if they do not.
fn change(ours: &Field, theirs: &Field) -> Option<String> {
    let cardinality = |field: &Field| match field.label {
        Label::Repeated => "repeated",
        Label::Single | Label::Oneof(_) => "single",
    };
    if ours.number != theirs.number {
        Some(format!(
            "is number {} there, {} here",
            theirs.number, ours.number
        ))
    } else if !is_same_kind(&ours.kind, &theirs.kind) {
        Some(format!("is {} there, {} here", theirs.kind, ours.kind))
    } else if cardinality(ours) != cardinality(theirs) {
        Some(format!(
            "is {} there, {} here",
            cardinality(theirs),
            cardinality(ours)
        ))
    } else {
        None
    }
}

/// Returns whether two types are the same. What we carry as bytes may be any message, and a
/// message without a name in the listing may be ours.
fn is_same_kind(ours: &str, theirs: &str) -> bool {
    let value = |kind: &str| {
        let entry = kind.strip_prefix("map<")?.strip_suffix('>')?;
        let (key, value) = entry.split_once(',')?;
        Some((key.to_owned(), value.to_owned()))
    };
    if let (Some((key, ours)), Some((listed, theirs))) = (value(ours), value(theirs)) {
        return key == listed && is_same_kind(&ours, &theirs);
    }
    let is_message =
        theirs.contains('.') && !theirs.starts_with("enum ") && !theirs.starts_with("map<");
    ours == theirs || (is_unnamed(theirs) && ours.contains('.')) || (ours == "bytes" && is_message)
}

fn is_unnamed(kind: &str) -> bool {
    kind.contains('(')
}

fn package(name: &str) -> &str {
    let end = name.match_indices('.').nth(1).map(|(at, _)| at);
    &name[..end.unwrap_or(name.len())]
}

/// Returns our messages that are reachable only through fields whose type the listing does not
/// name.
fn reachable_unnamed<'a>(ours: &'a SchemaTable, theirs: &SchemaTable) -> BTreeSet<&'a str> {
    let mut roots = Vec::new();
    for (name, fields) in &ours.messages {
        for (field_name, field) in fields {
            let listed = theirs
                .messages
                .get(name)
                .and_then(|all| all.get(field_name));
            if listed.is_some_and(|listed| is_unnamed(&listed.kind)) {
                roots.extend(message_of(&field.kind));
            }
        }
    }
    reachable(ours, roots)
}

/// Returns the messages that we only ever send.
fn sent_only(ours: &SchemaTable) -> BTreeSet<&str> {
    let requests = ours.messages.keys().map(String::as_str);
    let requests = requests.filter(|name| name.ends_with("Request"));
    let mut sent = reachable(ours, requests.chain([CLIENT_MESSAGE]).collect());
    let read = reachable(ours, vec![SERVER_MESSAGE]);
    sent.insert(CARRIED);
    sent.retain(|name| !read.contains(name));
    sent
}

/// Returns the messages that can be contained in `roots`. Opaque state is not followed.
fn reachable<'a>(table: &'a SchemaTable, mut roots: Vec<&'a str>) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    while let Some(name) = roots.pop() {
        if name == CARRIED || !reached.insert(name) {
            continue;
        }
        let fields = table.messages.get(name).into_iter().flatten();
        roots.extend(fields.filter_map(|(_, field)| message_of(&field.kind)));
    }
    reached
}

/// Returns the message type that a field type contains, if any.
fn message_of(kind: &str) -> Option<&str> {
    let kind = match kind
        .strip_prefix("map<")
        .and_then(|entry| entry.split_once(','))
    {
        Some((_, value)) => value.trim_end_matches('>'),
        None => kind,
    };
    (kind.contains('.') && !kind.starts_with("enum ")).then_some(kind)
}

#[cfg(test)]
mod tests;
