//! The host's active tools, and which of them does the work of each native tool.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value as Json;

use super::tool_inference;
use super::tool_shapes::{Operation, ToolShape, UnfillableArgument};
use crate::policy::NativeTool;

/// The host's active tools by name, and the tool that is called for each operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HostToolSet {
    names: BTreeSet<String>,
    shapes: BTreeMap<Operation, ToolShape>,
    unfillable: BTreeMap<Operation, UnfillableArgument>,
}

impl HostToolSet {
    /// Creates the set from names and argument schemas.
    pub fn new<'a>(tools: impl IntoIterator<Item = (&'a str, &'a Json)>) -> Self {
        let tools = tools.into_iter();
        Self::matched(tools.map(|(name, schema)| (name, Some(schema))).collect())
    }

    /// Creates a set of tools with unknown schemas: those with the names of pi's tools are assumed
    /// to accept what pi's tools accept.
    pub fn named<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::matched(names.into_iter().map(|name| (name, None)).collect())
    }

    fn matched(tools: BTreeMap<&str, Option<&Json>>) -> Self {
        let mut set = Self {
            names: tools.keys().map(|name| (*name).to_owned()).collect(),
            ..Self::default()
        };
        for operation in Operation::ALL {
            match best_shape(operation, &tools) {
                Some(Ok(shape)) => {
                    set.shapes.insert(operation, shape);
                }
                Some(Err(unfillable)) => {
                    set.unfillable.insert(operation, unfillable);
                }
                None => {}
            }
        }
        set
    }

    /// Returns whether no tool is active.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns whether a tool with this name is active.
    pub fn has(&self, tool: &str) -> bool {
        self.names.contains(tool)
    }

    /// Returns whether the host's tools can do the work of a native tool.
    pub fn can_execute(&self, tool: NativeTool) -> bool {
        let mut operations = operations(tool).iter();
        operations.any(|operation| self.shape(*operation).is_some())
    }

    /// Returns why a tool of the host with a fitting name cannot do the work of a native tool.
    pub fn problem(&self, tool: NativeTool) -> Option<String> {
        let operations = operations(tool).iter();
        let mut found = operations.filter_map(|operation| self.unfillable.get(operation));
        found.next().map(ToString::to_string)
    }

    /// Returns the shape of the tool for an operation: a known tool's, the shell's if a command of a
    /// known shell can do it, or that of a tool whose name and schema fit.
    pub(super) fn shape(&self, operation: Operation) -> Option<&ToolShape> {
        let own = self.shapes.get(&operation);
        if own.is_some_and(ToolShape::is_known) {
            return own;
        }
        let shell = self.shapes.get(&Operation::Shell);
        let by_command = shell.filter(|shell| {
            shell.recipes.contains(&operation) || (operation == Operation::Delete && own.is_none())
        });
        by_command.or(own)
    }
}

/// Returns the operations that do the work of a native tool; one is enough.
fn operations(tool: NativeTool) -> &'static [Operation] {
    match tool {
        NativeTool::Read => &[Operation::Read],
        NativeTool::Ls => &[Operation::List, Operation::Find],
        NativeTool::Grep => &[Operation::Search],
        NativeTool::Write => &[Operation::Write, Operation::Edit],
        NativeTool::Delete => &[Operation::Delete],
        NativeTool::Shell => &[Operation::Shell],
        NativeTool::Fetch => &[Operation::Fetch],
        NativeTool::GitDiff | NativeTool::Diagnostics => &[],
    }
}

/// Returns the shape of the best tool for an operation: a known one, else one whose name and
/// schema fit.
fn best_shape(
    operation: Operation,
    tools: &BTreeMap<&str, Option<&Json>>,
) -> Option<Result<ToolShape, UnfillableArgument>> {
    let known = ToolShape::known().iter();
    let known = known
        .filter(|shape| shape.operation == operation)
        .filter_map(|shape| shape.fitted(*tools.get(shape.tool.as_str())?));
    let mut by_name: Vec<(usize, &str, &Json)> = tools
        .iter()
        .filter_map(|(name, schema)| {
            Some((tool_inference::rank(name, operation)?, *name, (*schema)?))
        })
        .collect();
    by_name.sort_by_key(|(rank, ..)| *rank);
    let derived = by_name.iter().filter_map(|(_, name, schema)| {
        tool_inference::derive(name, operation, schema).fitted(Some(schema))
    });
    let mut unfillable = None;
    for fitted in known.chain(derived) {
        match fitted {
            Ok(shape) => return Some(Ok(shape)),
            Err(problem) => {
                unfillable.get_or_insert(problem);
            }
        }
    }
    unfillable.map(Err)
}
