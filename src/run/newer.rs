//! What a newer schema of Cursor's would mean for our runs: pure, from our table and theirs.
//!
//! A server that speaks the newer schema still gets an answer to everything; this says which
//! answers would be wrong, which would be refusals, and what we would not read.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::wire::listing::{Field, Label, Table, is_cursors};

pub use crate::wire::listing::ListingError;

/// What the server sends on a run.
const SERVER_MESSAGE: &str = "agent.v1.AgentServerMessage";
/// What we send on a run.
const CLIENT_MESSAGE: &str = "agent.v1.AgentClientMessage";
/// State is handed back as it came; what is in it is nothing to us.
const CARRIED: &str = "agent.v1.ConversationStateStructure";
/// Messages whose cases are requests, and what becomes of a case we do not know.
const REQUESTS: &[(&str, &str)] = &[
    ("agent.v1.ExecServerMessage", "would be thrown back"),
    ("agent.v1.InteractionQuery", "would get an empty answer"),
    ("agent.v1.KvServerMessage", "would get an error"),
    (SERVER_MESSAGE, "would be passed over"),
    ("agent.v1.ExecServerControlMessage", "would be passed over"),
];

/// What differs, what matters most first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    /// The same name means something else: we would misread or be misread.
    pub breaking: Vec<Difference>,
    /// Messages we use that are not there any more.
    pub gone: Vec<String>,
    /// Requests we would refuse.
    pub refused: Vec<Difference>,
    /// What we would not see in messages we read.
    pub unread: Vec<Difference>,
    /// How much of everything else.
    pub rest: Rest,
    /// Packages and nested messages the listing says nothing about.
    pub not_compared: Vec<String>,
    /// How much was compared.
    pub compared: Compared,
}

/// One thing that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// Full name of a field or of an enum's value.
    pub what: String,
    /// In what way.
    pub how: String,
}

/// How much of what needs nobody's attention.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Rest {
    /// Fields we could send and do not know.
    pub new_fields_in_what_we_send: usize,
    /// Fields we declare that are not there any more.
    pub fields_gone: usize,
    /// Fields with another name and the same meaning on the wire.
    pub fields_renamed: usize,
    /// Values we do not know of enums we do.
    pub new_enum_values: usize,
    /// Messages we do not declare.
    pub messages_we_do_not_use: usize,
}

/// How much was compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Compared {
    /// Messages.
    pub messages: usize,
    /// Their fields.
    pub fields: usize,
}

impl Comparison {
    /// Whether this version needs work before it meets the newer schema.
    pub fn breaks(&self) -> bool {
        !self.breaking.is_empty() || !self.gone.is_empty()
    }
}

/// Compares what this version declares with the text of a listing.
pub fn compare_with(listing: &str) -> Result<Comparison, ListingError> {
    Ok(compare(&Table::ours(), &Table::parse(listing)?))
}

fn compare(ours: &Table, theirs: &Table) -> Comparison {
    let mut found = Comparison::default();
    let sent_only = sent_only(ours);
    let packages: BTreeSet<&str> = theirs.messages.keys().map(|name| package(name)).collect();
    let nameless = nameless(ours, theirs);
    let mut not_compared = BTreeSet::new();
    for (name, fields) in &ours.messages {
        let way = match sent_only.contains(name.as_str()) {
            true => Way::Out,
            false => Way::In,
        };
        match theirs.messages.get(name) {
            Some(listed) => found.message(name, fields, listed, way),
            None if !packages.contains(package(name)) => {
                not_compared.insert(package(name).to_owned());
            }
            None if nameless.contains(name.as_str()) => {
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
    found.rest.messages_we_do_not_use = others.count();
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

/// Which way a message goes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// We read it.
    In,
    /// We only send it.
    Out,
}

impl Comparison {
    fn message(&mut self, message: &str, ours: &Fields, theirs: &Fields, way: Way) {
        self.compared.messages += 1;
        self.compared.fields += ours.len();
        for (name, field) in ours {
            let what = format!("{message}.{name}");
            match theirs.get(name) {
                Some(listed) => self.breaks_by(what, change(field, listed)),
                None => {
                    let heir = theirs
                        .iter()
                        .find(|(_, listed)| listed.number == field.number);
                    self.nameless_now(what, field, heir);
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
            self.new_field(message, name, field, way);
        }
    }

    fn breaks_by(&mut self, what: String, how: Option<String>) {
        self.breaking
            .extend(how.map(|how| Difference { what, how }));
    }

    /// A field whose name is not listed; `heir` has its number.
    fn nameless_now(&mut self, what: String, field: &Field, heir: Option<(&String, &Field)>) {
        match heir {
            None => self.rest.fields_gone += 1,
            Some((_, listed)) if change(field, listed).is_none() => self.rest.fields_renamed += 1,
            Some((name, listed)) => {
                let (number, kind) = (listed.number, &listed.kind);
                let how = format!("its number {number} is now {name}, {kind}");
                self.breaks_by(what, Some(how));
            }
        }
    }

    fn new_field(&mut self, message: &str, name: &str, field: &Field, way: Way) {
        let what = format!("{message}.{name}");
        let (number, kind) = (field.number, &field.kind);
        let is_case = matches!(field.label, Label::Oneof(_));
        let request = REQUESTS
            .iter()
            .find(|(owner, _)| is_case && *owner == message);
        match (request, way) {
            (Some((_, fate)), _) => self.refused.push(Difference {
                what,
                how: format!("{number}, {kind}: {fate}"),
            }),
            (None, Way::In) => self.unread.push(Difference {
                what,
                how: match is_case {
                    true => format!("{number}, {kind}, a new case"),
                    false => format!("{number}, {kind}"),
                },
            }),
            (None, Way::Out) => self.rest.new_fields_in_what_we_send += 1,
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
        self.rest.new_enum_values += new.count();
    }
}

/// How a field of the same name or number is another one; `None` if it is not.
fn change(ours: &Field, theirs: &Field) -> Option<String> {
    let often = |field: &Field| match field.label {
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
    } else if often(ours) != often(theirs) {
        Some(format!("is {} there, {} here", often(theirs), often(ours)))
    } else {
        None
    }
}

/// Whether two types are one. What we carry as bytes may be any message, and a message whose
/// name the listing does not know may be ours.
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
    ours == theirs || (is_nameless(theirs) && ours.contains('.')) || (ours == "bytes" && is_message)
}

fn is_nameless(kind: &str) -> bool {
    kind.contains('(')
}

fn package(name: &str) -> &str {
    let end = name.match_indices('.').nth(1).map(|(at, _)| at);
    &name[..end.unwrap_or(name.len())]
}

/// Messages of ours that only nameless fields of theirs lead to.
fn nameless<'a>(ours: &'a Table, theirs: &Table) -> BTreeSet<&'a str> {
    let mut roots = Vec::new();
    for (name, fields) in &ours.messages {
        for (field_name, field) in fields {
            let listed = theirs
                .messages
                .get(name)
                .and_then(|all| all.get(field_name));
            if listed.is_some_and(|listed| is_nameless(&listed.kind)) {
                roots.extend(message_of(&field.kind));
            }
        }
    }
    reachable(ours, roots)
}

/// Messages that only ever go from us to the server.
fn sent_only(ours: &Table) -> BTreeSet<&str> {
    let requests = ours.messages.keys().map(String::as_str);
    let requests = requests.filter(|name| name.ends_with("Request"));
    let mut sent = reachable(ours, requests.chain([CLIENT_MESSAGE]).collect());
    let read = reachable(ours, vec![SERVER_MESSAGE]);
    sent.insert(CARRIED);
    sent.retain(|name| !read.contains(name));
    sent
}

/// Messages that can stand in one of these. What is carried untouched is not looked into.
fn reachable<'a>(table: &'a Table, mut roots: Vec<&'a str>) -> BTreeSet<&'a str> {
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

/// The message a type holds, if it is one.
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
