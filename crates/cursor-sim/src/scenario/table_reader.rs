//! Reads a table member by member; reports missing, wrong and unknown members.

use std::time::Duration;

use super::ScenarioError;
use super::source::{Member, Node, NodeContent};

/// Reads a table; `finish` rejects the members that were not read.
pub(super) struct TableReader<'n> {
    file: &'n str,
    line: usize,
    what: &'static str,
    members: &'n [Member],
    read: Vec<&'static str>,
}

impl<'n> TableReader<'n> {
    /// Starts reading a table; `what` names it in messages.
    pub(super) fn new(
        file: &'n str,
        node: &'n Node,
        what: &'static str,
    ) -> Result<Self, ScenarioError> {
        match &node.content {
            NodeContent::Table(members) => Ok(Self {
                file,
                line: node.line,
                what,
                members,
                read: Vec::new(),
            }),
            _ => Err(ScenarioError::at(
                file,
                node.line,
                format!("{what} takes a table, not {}", node.describe()),
            )),
        }
    }

    /// Returns the file, for errors.
    pub(super) fn file(&self) -> &'n str {
        self.file
    }

    /// Returns the member with this name, if there is one.
    pub(super) fn get(&mut self, name: &'static str) -> Option<&'n Node> {
        self.read.push(name);
        self.members
            .iter()
            .find(|member| member.name == name)
            .map(|member| &member.node)
    }

    /// Returns the name that the table uses for a member: `name`, or `former`, which older files
    /// have.
    pub(super) fn used_name(&self, name: &'static str, former: &'static str) -> &'static str {
        if self.members.iter().any(|member| member.name == former) {
            former
        } else {
            name
        }
    }

    /// Returns the member with this name, or an error if it is missing.
    pub(super) fn require(&mut self, name: &'static str) -> Result<&'n Node, ScenarioError> {
        self.get(name).ok_or_else(|| {
            ScenarioError::at(
                self.file,
                self.line,
                format!("{} needs {name:?}", self.what),
            )
        })
    }

    /// Returns a string member.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, ScenarioError> {
        self.get(name)
            .map(|node| text(self.file, node, name))
            .transpose()
    }

    /// Returns a boolean member; `false` if it is missing.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, ScenarioError> {
        match self.get(name) {
            None => Ok(false),
            Some(Node {
                content: NodeContent::Bool(value),
                ..
            }) => Ok(*value),
            Some(node) => Err(type_error(self.file, node, name, "true or false")),
        }
    }

    /// Returns a non-negative integer member.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<u64>, ScenarioError> {
        self.get(name)
            .map(|node| number(self.file, node, name))
            .transpose()
    }

    /// Returns a duration member in milliseconds.
    pub(super) fn millis(&mut self, name: &'static str) -> Result<Option<Duration>, ScenarioError> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// Returns an error if the table has members that were not read.
    pub(super) fn finish(self) -> Result<(), ScenarioError> {
        for member in self.members {
            if !self.read.contains(&member.name.as_str()) {
                return Err(ScenarioError::at(
                    self.file,
                    member.line,
                    format!(
                        "unknown key {:?} in {}; expected one of {}",
                        member.name,
                        self.what,
                        self.read.join(", ")
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// Returns the string in a node.
pub(super) fn text(file: &str, node: &Node, name: &str) -> Result<String, ScenarioError> {
    match &node.content {
        NodeContent::Text(text) => Ok(text.clone()),
        _ => Err(type_error(file, node, name, "a string")),
    }
}

/// Returns the non-negative integer in a node.
pub(super) fn number(file: &str, node: &Node, name: &str) -> Result<u64, ScenarioError> {
    match &node.content {
        NodeContent::Number(number) => number.as_u64(),
        _ => None,
    }
    .ok_or_else(|| type_error(file, node, name, "a whole number, 0 or more"))
}

/// Returns the items of an array.
pub(super) fn array<'n>(
    file: &str,
    node: &'n Node,
    name: &str,
) -> Result<&'n [Node], ScenarioError> {
    match &node.content {
        NodeContent::Array(items) => Ok(items),
        _ => Err(type_error(file, node, name, "an array")),
    }
}

/// Returns the error for a value of the wrong type.
pub(super) fn type_error(file: &str, node: &Node, name: &str, expected: &str) -> ScenarioError {
    ScenarioError::at(
        file,
        node.line,
        format!("{name:?} takes {expected}, not {}", node.describe()),
    )
}
