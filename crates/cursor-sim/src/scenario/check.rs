//! Checks the messages of a scenario against the schema, so that a typo is reported at start-up.

use prost_reflect::{Cardinality, FieldDescriptor, Kind, MessageDescriptor};

use super::ScenarioError;
use super::source::{Member, Node, NodeContent};
use crate::{matcher, schema, variables};

/// What a tree is used as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CheckAs {
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
    check_as: CheckAs,
) -> Result<(), ScenarioError> {
    let descriptor = schema::message(name)
        .map_err(|error| ScenarioError::at(file, node.line, error.to_string()))?;
    Checker { file, check_as }.message(node, &descriptor)
}

struct Checker<'f> {
    file: &'f str,
    check_as: CheckAs,
}

impl Checker<'_> {
    fn message(&self, node: &Node, message: &MessageDescriptor) -> Result<(), ScenarioError> {
        match message.full_name() {
            "google.protobuf.Value" => return Ok(()),
            "google.protobuf.Struct" => return self.table(node, message.full_name()).map(drop),
            _ => {}
        }
        if self.is_placeholder(node)? {
            return Ok(());
        }
        for member in self.table(node, message.full_name())? {
            let Some(field) = message
                .get_field_by_json_name(&member.name)
                .or_else(|| message.get_field_by_name(&member.name))
            else {
                if self.check_as == CheckAs::Pattern && member.name == "unknownFields" {
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
        if self.is_placeholder(node)? {
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
            let NodeContent::Array(items) = &node.content else {
                return Err(self.type_error(node, field, "an array"));
            };
            return items.iter().try_for_each(|item| self.single(item, field));
        }
        self.single(node, field)
    }

    fn single(&self, node: &Node, field: &FieldDescriptor) -> Result<(), ScenarioError> {
        if self.is_placeholder(node)? {
            return Ok(());
        }
        let (matches, expected) = match (field.kind(), &node.content) {
            (Kind::Message(message), _) => return self.message(node, &message),
            (Kind::Bool, content) => (matches!(content, NodeContent::Bool(_)), "true or false"),
            (Kind::String, content) => (matches!(content, NodeContent::Text(_)), "a string"),
            (Kind::Bytes, NodeContent::Text(text)) => (
                variables::has_variable(text) || schema::from_base64(text).is_some(),
                "base64",
            ),
            (Kind::Bytes, _) => (false, "base64"),
            (Kind::Double | Kind::Float, content) => {
                (matches!(content, NodeContent::Number(_)), "a number")
            }
            (Kind::Enum(values), NodeContent::Text(text)) => {
                if values.get_value_by_name(text).is_none() {
                    let known = names(values.values().map(|value| value.name().to_owned()));
                    let message = format!(
                        "{text:?} is not a value of {}; it has {known}",
                        values.full_name()
                    );
                    return Err(self.error(node.line, message));
                }
                (true, "")
            }
            (Kind::Enum(_), content) => (matches!(content, NodeContent::Number(_)), "an enum name"),
            (_, NodeContent::Number(number)) => (!number.is_f64(), "a whole number"),
            // proto3 JSON writes 64-bit numbers as strings.
            (Kind::Int64 | Kind::Uint64, NodeContent::Text(text)) => {
                (text.parse::<i128>().is_ok(), "a whole number")
            }
            _ => (false, "a whole number"),
        };
        if matches {
            Ok(())
        } else {
            Err(self.type_error(node, field, expected))
        }
    }

    /// Returns whether a node is a variable or, in a pattern, an operator, which match any type.
    fn is_placeholder(&self, node: &Node) -> Result<bool, ScenarioError> {
        match &node.content {
            NodeContent::Text(text) => Ok(variables::is_variable(text)),
            NodeContent::Table(members) if self.check_as == CheckAs::Pattern => {
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
            NodeContent::Table(members) => Ok(members),
            _ => Err(self.error(
                node.line,
                format!("{what} takes a table, not {}", node.describe()),
            )),
        }
    }

    fn type_error(&self, node: &Node, field: &FieldDescriptor, expected: &str) -> ScenarioError {
        self.error(
            node.line,
            format!(
                "field {:?} of {} takes {expected}, not {}",
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

/// Joins the first names; counts the rest.
fn names(all: impl Iterator<Item = String>) -> String {
    const MAX_NAMES: usize = 12;
    let all: Vec<String> = all.collect();
    if all.is_empty() {
        return "no fields".into();
    }
    let listed = all
        .iter()
        .take(MAX_NAMES)
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    match all.len().checked_sub(MAX_NAMES) {
        Some(rest) if rest > 0 => format!("{listed} and {rest} more"),
        _ => listed,
    }
}
