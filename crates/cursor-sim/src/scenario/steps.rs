//! Reads the steps of a run and checks their order and the names they use.

use super::source::Node;
use super::{BlobRef, ScenarioError, ScenarioStep, Script, StepAction, step};

/// Reads the steps of one run.
pub(super) fn read(
    file: &str,
    nodes: &[Node],
    resumable: bool,
) -> Result<Vec<ScenarioStep>, ScenarioError> {
    let steps = nodes
        .iter()
        .map(|node| step::read(file, node))
        .collect::<Result<Vec<_>, _>>()?;
    check_order(file, &steps, resumable)?;
    check_exec_names(file, &steps)?;
    Ok(steps)
}

fn check_order(file: &str, steps: &[ScenarioStep], resumable: bool) -> Result<(), ScenarioError> {
    for (index, step) in steps.iter().enumerate() {
        if index > 0 && matches!(step.action, StepAction::Status(_)) {
            let message = "status must be the first step of its run";
            return Err(ScenarioError::at(file, step.line, message));
        }
        if let Some(next) = steps.get(index + 1)
            && step.action.ends_the_run()
            // A later attempt of a resumable script may start after the end of an earlier one.
            && !resumable
        {
            let message = "this step is never reached: the one before it ends the run";
            return Err(ScenarioError::at(file, next.line, message));
        }
    }
    Ok(())
}

/// Checks that `await` and `abort` name an exec that an earlier step left open.
fn check_exec_names(file: &str, steps: &[ScenarioStep]) -> Result<(), ScenarioError> {
    let mut open: Vec<&str> = Vec::new();
    for step in steps {
        let used: Vec<&str> = match &step.action {
            StepAction::Exec(exec) => {
                if exec.leave_open {
                    open.extend(exec.name.as_deref());
                }
                continue;
            }
            StepAction::Await(names) => names.iter().map(String::as_str).collect(),
            StepAction::Abort(name) => vec![name],
            _ => continue,
        };
        for name in used {
            if !open.contains(&name) {
                let message = format!("no open exec is named {name:?} before this step");
                return Err(ScenarioError::at(file, step.line, message));
            }
        }
    }
    Ok(())
}

/// Checks that every blob read by name is stored under that name somewhere in the file.
pub(super) fn check_blob_names(
    file: &str,
    tree: &Node,
    runs: &[Script],
) -> Result<(), ScenarioError> {
    let steps = || runs.iter().flat_map(|run| &run.steps);
    let stored: Vec<&str> = steps()
        .filter_map(|step| match &step.action {
            StepAction::KvSet(set) => set.name.as_deref(),
            _ => None,
        })
        .collect();
    for step in steps() {
        if let StepAction::KvGet(get) = &step.action
            && let BlobRef::Name(name) = &get.key
            && !stored.contains(&name.as_str())
        {
            let message = format!("no kv_set in this file is named {name:?}");
            return Err(ScenarioError::at(file, step.line.max(tree.line), message));
        }
    }
    Ok(())
}
