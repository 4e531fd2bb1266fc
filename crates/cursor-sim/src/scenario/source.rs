//! Parses a scenario file, TOML or JSON, into a tree with line numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ScenarioError;

/// A value and the line it starts on.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Node {
    pub(crate) line: usize,
    pub(crate) content: NodeContent,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum NodeContent {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    Array(Vec<Node>),
    Table(Vec<Member>),
}

/// A named value in a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    pub(crate) line: usize,
    pub(crate) node: Node,
}

impl Node {
    /// Returns the value without line numbers.
    pub(crate) fn to_json(&self) -> Value {
        match &self.content {
            NodeContent::Null => Value::Null,
            NodeContent::Bool(value) => Value::Bool(*value),
            NodeContent::Number(value) => Value::Number(value.clone()),
            NodeContent::Text(value) => Value::String(value.clone()),
            NodeContent::Array(items) => items.iter().map(Node::to_json).collect(),
            NodeContent::Table(members) => members
                .iter()
                .map(|member| (member.name.clone(), member.node.to_json()))
                .collect::<Map<_, _>>()
                .into(),
        }
    }

    /// Returns the type of the value, for error messages.
    pub(crate) fn describe(&self) -> &'static str {
        match self.content {
            NodeContent::Null => "null",
            NodeContent::Bool(_) => "a boolean",
            NodeContent::Number(_) => "a number",
            NodeContent::Text(_) => "a string",
            NodeContent::Array(_) => "an array",
            NodeContent::Table(_) => "a table",
        }
    }
}

/// Offsets of line starts, to convert offsets to line numbers.
struct LineIndex(Vec<usize>);

impl LineIndex {
    fn new(text: &str) -> Self {
        let breaks = text.match_indices('\n').map(|(at, _)| at + 1);
        Self(std::iter::once(0).chain(breaks).collect())
    }

    fn line(&self, offset: usize) -> usize {
        self.0.partition_point(|start| *start <= offset)
    }
}

/// Parses TOML.
pub(super) fn toml(file: &str, text: &str) -> Result<Node, ScenarioError> {
    let lines = LineIndex::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let line = error.span().map_or(1, |span| lines.line(span.start));
        ScenarioError::at(file, line, error.message())
    })?;
    let line = lines.line(table.span().start);
    Ok(Node {
        line,
        content: toml_table(file, table.get_ref(), &lines)?,
    })
}

fn toml_node(
    file: &str,
    value: &Spanned<DeValue<'_>>,
    lines: &LineIndex,
) -> Result<Node, ScenarioError> {
    let line = lines.line(value.span().start);
    let content = match value.get_ref() {
        DeValue::String(text) => NodeContent::Text(text.to_string()),
        DeValue::Boolean(value) => NodeContent::Bool(*value),
        DeValue::Integer(integer) => {
            let digits = integer.as_str();
            let number = i64::from_str_radix(digits, integer.radix())
                .map(Number::from)
                .map_err(|_| ScenarioError::at(file, line, format!("{digits} is out of range")))?;
            NodeContent::Number(number)
        }
        DeValue::Float(float) => {
            let number = float.as_str().parse().ok().and_then(Number::from_f64);
            match number {
                Some(number) => NodeContent::Number(number),
                None => {
                    let message = format!("{} cannot be represented in JSON", float.as_str());
                    return Err(ScenarioError::at(file, line, message));
                }
            }
        }
        DeValue::Datetime(_) => {
            let message = "dates are not supported; use a string";
            return Err(ScenarioError::at(file, line, message));
        }
        DeValue::Array(items) => NodeContent::Array(
            items
                .iter()
                .map(|item| toml_node(file, item, lines))
                .collect::<Result<_, _>>()?,
        ),
        DeValue::Table(table) => toml_table(file, table, lines)?,
    };
    Ok(Node { line, content })
}

fn toml_table(
    file: &str,
    table: &DeTable<'_>,
    lines: &LineIndex,
) -> Result<NodeContent, ScenarioError> {
    let members = table
        .iter()
        .map(|(name, value)| {
            Ok(Member {
                name: name.get_ref().to_string(),
                line: lines.line(name.span().start),
                node: toml_node(file, value, lines)?,
            })
        })
        .collect::<Result<_, _>>()?;
    Ok(NodeContent::Table(members))
}

/// Parses JSON.
pub(super) fn json(file: &str, text: &str) -> Result<Node, ScenarioError> {
    let raw: &RawValue = serde_json::from_str(text)
        .map_err(|error| ScenarioError::at(file, error.line().max(1), json_reason(&error)))?;
    JsonFile {
        text,
        lines: LineIndex::new(text),
    }
    .node(raw, MAX_DEPTH)
    .map_err(|error| ScenarioError::at(file, 1, json_reason(&error)))
}

/// How deep values may nest; the same as serde_json's own limit.
const MAX_DEPTH: usize = 128;

/// Returns serde_json's message without the position, because the caller adds the line.
fn json_reason(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rfind(" at line ") {
        Some(at) => text[..at].to_owned(),
        None => text,
    }
}

struct JsonFile<'t> {
    text: &'t str,
    lines: LineIndex,
}

impl JsonFile<'_> {
    fn node(&self, raw: &RawValue, depth: usize) -> serde_json::Result<Node> {
        let line = self.line(raw.get());
        let depth = depth
            .checked_sub(1)
            .ok_or_else(|| serde::de::Error::custom("values nest too deep"))?;
        let content = match raw.get().as_bytes().first() {
            Some(b'{') => {
                let members: JsonMembers<'_> = serde_json::from_str(raw.get())?;
                let members = members
                    .0
                    .into_iter()
                    .map(|(name, value)| {
                        let node = self.node(value, depth)?;
                        Ok(Member {
                            name,
                            line: node.line,
                            node,
                        })
                    })
                    .collect::<serde_json::Result<_>>()?;
                NodeContent::Table(members)
            }
            Some(b'[') => {
                let items: Vec<&RawValue> = serde_json::from_str(raw.get())?;
                let items = items
                    .into_iter()
                    .map(|item| self.node(item, depth))
                    .collect::<serde_json::Result<_>>()?;
                NodeContent::Array(items)
            }
            _ => match serde_json::from_str(raw.get())? {
                Value::Bool(value) => NodeContent::Bool(value),
                Value::Number(value) => NodeContent::Number(value),
                Value::String(value) => NodeContent::Text(value),
                _ => NodeContent::Null,
            },
        };
        Ok(Node { line, content })
    }

    /// Returns the line of a slice of the file, computed from its address.
    fn line(&self, slice: &str) -> usize {
        let offset = slice
            .as_ptr()
            .addr()
            .wrapping_sub(self.text.as_ptr().addr());
        self.lines.line(offset.min(self.text.len()))
    }
}

/// The members of a JSON object in order, with unparsed values.
struct JsonMembers<'t>(Vec<(String, &'t RawValue)>);

impl<'de: 't, 't> Deserialize<'de> for JsonMembers<'t> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Vec<(String, &'de RawValue)>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(members)
            }

            fn visit_seq<A: SeqAccess<'de>>(self, _: A) -> Result<Self::Value, A::Error> {
                Err(serde::de::Error::custom("expected an object"))
            }
        }
        deserializer.deserialize_map(Collect).map(Self)
    }
}
