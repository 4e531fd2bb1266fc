//! A JSON value that knows its path, for errors.

use std::fmt;

use serde_json::Value as Json;

use super::MessageError;

/// A value within `messages`.
pub(super) struct MessageNode<'a> {
    pub(super) value: &'a Json,
    parent: Option<&'a MessageNode<'a>>,
    step: PathSegment<'a>,
}

enum PathSegment<'a> {
    Message(usize),
    Item(usize),
    Field(&'a str),
}

impl<'a> MessageNode<'a> {
    /// Returns the message at an index.
    pub(super) fn message(index: usize, value: &'a Json) -> Self {
        Self {
            value,
            parent: None,
            step: PathSegment::Message(index),
        }
    }

    /// Returns a field; `Null` if it is absent or this is not an object.
    pub(super) fn get<'b>(&'b self, name: &'b str) -> MessageNode<'b> {
        MessageNode {
            value: &self.value[name],
            parent: Some(self),
            step: PathSegment::Field(name),
        }
    }

    /// Returns the items of a list.
    pub(super) fn items(&self) -> Result<impl Iterator<Item = MessageNode<'_>>, MessageError> {
        let items = self.value.as_array();
        let items = items.ok_or_else(|| self.wrong("expected a list"))?;
        Ok(items.iter().enumerate().map(|(index, value)| MessageNode {
            value,
            parent: Some(self),
            step: PathSegment::Item(index),
        }))
    }

    /// Returns the items of a list that may be absent.
    pub(super) fn items_or_none(
        &self,
    ) -> Result<impl Iterator<Item = MessageNode<'_>>, MessageError> {
        let items = if self.value.is_null() {
            None
        } else {
            Some(self.items()?)
        };
        Ok(items.into_iter().flatten())
    }

    pub(super) fn text(&self) -> Result<&'a str, MessageError> {
        match self.value {
            Json::String(text) => Ok(text),
            Json::Null => Err(self.wrong("it is missing")),
            _ => Err(self.wrong("expected a string")),
        }
    }

    /// Returns a text that may be absent.
    pub(super) fn text_or_empty(&self) -> Result<&'a str, MessageError> {
        match self.value {
            Json::Null => Ok(""),
            _ => self.text(),
        }
    }

    /// Returns a flag; absent is `false`.
    pub(super) fn flag(&self) -> Result<bool, MessageError> {
        match self.value {
            Json::Null => Ok(false),
            Json::Bool(flag) => Ok(*flag),
            _ => Err(self.wrong("expected true or false")),
        }
    }

    /// Returns an error at this place. If the parent is not an object, the error is the parent's.
    pub(super) fn wrong(&self, problem: impl Into<String>) -> MessageError {
        if let (PathSegment::Field(_), Some(parent)) = (&self.step, self.parent)
            && !parent.value.is_object()
        {
            return parent.wrong("expected an object");
        }
        MessageError {
            path: self.to_string(),
            problem: problem.into(),
        }
    }
}

impl fmt::Display for MessageNode<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(parent) = self.parent {
            parent.fmt(f)?;
        }
        match self.step {
            PathSegment::Message(index) => write!(f, "messages[{index}]"),
            PathSegment::Item(index) => write!(f, "[{index}]"),
            PathSegment::Field(name) => write!(f, ".{name}"),
        }
    }
}
