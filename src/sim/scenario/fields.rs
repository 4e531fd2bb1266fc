//! Reading a table member by member, with an error for what is missing, wrong or unknown.

use std::time::Duration;

use super::ScenarioError;
use super::source::{Content, Member, Node};

/// A table being read; every member must be asked for.
pub(super) struct Fields<'n> {
    file: &'n str,
    line: usize,
    what: &'static str,
    members: &'n [Member],
    asked: Vec<&'static str>,
}

impl<'n> Fields<'n> {
    /// Starts reading a table; `what` names it in messages.
    pub(super) fn new(
        file: &'n str,
        node: &'n Node,
        what: &'static str,
    ) -> Result<Self, ScenarioError> {
        match &node.content {
            Content::Table(members) => Ok(Self {
                file,
                line: node.line,
                what,
                members,
                asked: Vec::new(),
            }),
            _ => Err(ScenarioError::at(
                file,
                node.line,
                format!("{what} takes a table, not {}", node.describe()),
            )),
        }
    }

    /// The file, for errors.
    pub(super) fn file(&self) -> &'n str {
        self.file
    }

    /// The member of this name, if it is there.
    pub(super) fn get(&mut self, name: &'static str) -> Option<&'n Node> {
        self.asked.push(name);
        self.members
            .iter()
            .find(|member| member.name == name)
            .map(|member| &member.node)
    }

    /// The member of this name.
    pub(super) fn need(&mut self, name: &'static str) -> Result<&'n Node, ScenarioError> {
        self.get(name).ok_or_else(|| {
            ScenarioError::at(
                self.file,
                self.line,
                format!("{} needs {name:?}", self.what),
            )
        })
    }

    /// A string member.
    pub(super) fn text(&mut self, name: &'static str) -> Result<Option<String>, ScenarioError> {
        self.get(name)
            .map(|node| text(self.file, node, name))
            .transpose()
    }

    /// A true-or-false member; absent is false.
    pub(super) fn flag(&mut self, name: &'static str) -> Result<bool, ScenarioError> {
        match self.get(name) {
            None => Ok(false),
            Some(Node {
                content: Content::Bool(value),
                ..
            }) => Ok(*value),
            Some(node) => Err(wrong(self.file, node, name, "true or false")),
        }
    }

    /// A whole, non-negative member.
    pub(super) fn number(&mut self, name: &'static str) -> Result<Option<u64>, ScenarioError> {
        self.get(name)
            .map(|node| number(self.file, node, name))
            .transpose()
    }

    /// Milliseconds.
    pub(super) fn millis(&mut self, name: &'static str) -> Result<Option<Duration>, ScenarioError> {
        Ok(self.number(name)?.map(Duration::from_millis))
    }

    /// Says no to members nobody asked for.
    pub(super) fn finish(self) -> Result<(), ScenarioError> {
        for member in self.members {
            if !self.asked.contains(&member.name.as_str()) {
                return Err(ScenarioError::at(
                    self.file,
                    member.line,
                    format!(
                        "unknown key {:?} in {}; expected one of {}",
                        member.name,
                        self.what,
                        self.asked.join(", ")
                    ),
                ));
            }
        }
        Ok(())
    }
}

/// A string.
pub(super) fn text(file: &str, node: &Node, name: &str) -> Result<String, ScenarioError> {
    match &node.content {
        Content::Text(text) => Ok(text.clone()),
        _ => Err(wrong(file, node, name, "a string")),
    }
}

/// A whole, non-negative number.
pub(super) fn number(file: &str, node: &Node, name: &str) -> Result<u64, ScenarioError> {
    match &node.content {
        Content::Number(number) => number.as_u64(),
        _ => None,
    }
    .ok_or_else(|| wrong(file, node, name, "a whole number, 0 or more"))
}

/// An array.
pub(super) fn array<'n>(
    file: &str,
    node: &'n Node,
    name: &str,
) -> Result<&'n [Node], ScenarioError> {
    match &node.content {
        Content::Array(items) => Ok(items),
        _ => Err(wrong(file, node, name, "an array")),
    }
}

/// The error for a value of the wrong kind.
pub(super) fn wrong(file: &str, node: &Node, name: &str, wanted: &str) -> ScenarioError {
    ScenarioError::at(
        file,
        node.line,
        format!("{name:?} takes {wanted}, not {}", node.describe()),
    )
}
