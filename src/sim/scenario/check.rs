//! Compares what a scenario writes with the schema, so that a typo is found at start-up
//! and not as a puzzling reply.

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use super::ScenarioError;
use super::source::{Content, Member, Node};
use crate::sim::{matcher, schema, variables};

/// What a tree is going to be used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A message to send.
    Message,
    /// A pattern to compare a message with.
    Pattern,
}

/// Checks a tree against a message of this name.
pub(super) fn message(
    file: &str,
    node: &Node,
    name: &str,
    usage: Use,
) -> Result<(), ScenarioError> {
    let descriptor = schema::message(name)
        .map_err(|error| ScenarioError::at(file, node.line, error.to_string()))?;
    Checker { file, usage }.message(node, &descriptor)
}

struct Checker<'f> {
    file: &'f str,
    usage: Use,
}

impl Checker<'_> {
    fn message(&self, node: &Node, message: &MessageDescriptor) -> Result<(), ScenarioError> {
        match message.full_name() {
            "google.protobuf.Value" => return Ok(()),
            "google.protobuf.Struct" => return self.table(node, message.full_name()).map(drop),
            _ => {}
        }
        if self.stands_for_anything(node)? {
            return Ok(());
        }
        for member in self.table(node, message.full_name())? {
            let Some(field) = message
                .get_field_by_json_name(&member.name)
                .or_else(|| message.get_field_by_name(&member.name))
            else {
                if self.usage == Use::Pattern && member.name == "unknownFields" {
                    continue;
                }
                return Err(self.error(
                    member.line,
                    format!(
                        "unknown field {:?} in {}; it has {}",
                        member.name,
                        message.full_name(),
                        names(message.fields().map(|field| field.json_name().to_owned()))
                    ),
                ));
            };
            self.field(member, &field)?;
        }
        Ok(())
    }

    fn field(&self, member: &Member, field: &FieldDescriptor) -> Result<(), ScenarioError> {
        let node = &member.node;
        if self.stands_for_anything(node)? {
            return Ok(());
        }
        if field.is_map() {
            let Kind::Message(entry) = field.kind() else {
                return Ok(());
            };
            let value = entry.map_entry_value_field();
            for item in self.table(node, field.full_name())? {
                self.single(&item.node, &value)?;
            }
            return Ok(());
        }
        if field.cardinality() == Cardinality::Repeated {
            let Content::Array(items) = &node.content else {
                return Err(self.wrong(node, field, "an array"));
            };
            return items.iter().try_for_each(|item| self.single(item, field));
        }
        self.single(node, field)
    }

    fn single(&self, node: &Node, field: &FieldDescriptor) -> Result<(), ScenarioError> {
        if self.stands_for_anything(node)? {
            return Ok(());
        }
        let (fits, wanted) = match (field.kind(), &node.content) {
            (Kind::Message(message), _) => return self.message(node, &message),
            (Kind::Bool, content) => (matches!(content, Content::Bool(_)), "true or false"),
            (Kind::String, content) => (matches!(content, Content::Text(_)), "a string"),
            (Kind::Bytes, Content::Text(text)) => (
                variables::mentioned(text) || schema::from_base64(text).is_some(),
                "base64",
            ),
            (Kind::Bytes, _) => (false, "base64"),
            (Kind::Double | Kind::Float, content) => {
                (matches!(content, Content::Number(_)), "a number")
            }
            (Kind::Enum(values), Content::Text(text)) => {
                if values.get_value_by_name(text).is_none() {
                    let known = names(values.values().map(|value| value.name().to_owned()));
                    let message = format!("{text:?} is no {}; it has {known}", values.full_name());
                    return Err(self.error(node.line, message));
                }
                (true, "")
            }
            (Kind::Enum(_), content) => (matches!(content, Content::Number(_)), "an enum name"),
            (_, Content::Number(number)) => (!number.is_f64(), "a whole number"),
            // proto3 JSON writes 64-bit numbers as strings.
            (Kind::Int64 | Kind::Uint64, Content::Text(text)) => {
                (text.parse::<i128>().is_ok(), "a whole number")
            }
            _ => (false, "a whole number"),
        };
        if fits {
            Ok(())
        } else {
            Err(self.wrong(node, field, wanted))
        }
    }

    /// A variable or, in a pattern, an operator: the schema has no say.
    fn stands_for_anything(&self, node: &Node) -> Result<bool, ScenarioError> {
        match &node.content {
            Content::Text(text) => Ok(variables::is_whole(text)),
            Content::Table(members) if self.usage == Use::Pattern => {
                let Some(member) = members.iter().find(|m| matcher::is_operator(&m.name)) else {
                    return Ok(false);
                };
                matcher::check_operator(&node.to_json())
                    .map_err(|reason| self.error(member.line, reason))?;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    fn table<'n>(&self, node: &'n Node, what: &str) -> Result<&'n [Member], ScenarioError> {
        match &node.content {
            Content::Table(members) => Ok(members),
            _ => Err(self.error(
                node.line,
                format!("{what} takes a table, not {}", node.describe()),
            )),
        }
    }

    fn wrong(&self, node: &Node, field: &FieldDescriptor, wanted: &str) -> ScenarioError {
        self.error(
            node.line,
            format!(
                "field {:?} of {} takes {wanted}, not {}",
                field.json_name(),
                field.parent_message().full_name(),
                node.describe()
            ),
        )
    }

    fn error(&self, line: usize, message: impl Into<String>) -> ScenarioError {
        ScenarioError::at(self.file, line, message)
    }
}

/// At most a line of names.
fn names(all: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 12;
    let all: Vec<String> = all.collect();
    if all.is_empty() {
        return "no fields".into();
    }
    let shown = all
        .iter()
        .take(SHOWN)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match all.len().checked_sub(SHOWN) {
        Some(rest) if rest > 0 => format!("{shown} and {rest} more"),
        _ => shown,
    }
}
