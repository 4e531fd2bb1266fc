//! The steps of a run together: order, and names that one step gives and another uses.

use super::source::Node;
use super::{Action, BlobKey, ScenarioError, Script, Step, Telling, Wait, step};

/// Reads the steps of one run.
pub(super) fn read(
    file: &str,
    nodes: &[Node],
    telling: Telling,
) -> Result<Vec<Step>, ScenarioError> {
    let steps = nodes
        .iter()
        .map(|node| step::read(file, node))
        .collect::<Result<Vec<_>, _>>()?;
    check_order(file, &steps, telling)?;
    check_exec_names(file, &steps)?;
    Ok(steps)
}

fn check_order(file: &str, steps: &[Step], telling: Telling) -> Result<(), ScenarioError> {
    for (index, step) in steps.iter().enumerate() {
        if index > 0 && matches!(step.action, Action::Status(_)) {
            let message = "status must be the first step of its run";
            return Err(ScenarioError::at(file, step.line, message));
        }
        if let Some(next) = steps.get(index + 1)
            && step.action.ends_the_run()
            // A story has chapters: a later run begins behind the end of an earlier one.
            && telling == Telling::Afresh
        {
            let message = "this step never plays: the one before it ends the run";
            return Err(ScenarioError::at(file, next.line, message));
        }
    }
    Ok(())
}

/// Every name that `await` and `abort` use must be that of an open exec before them.
fn check_exec_names(file: &str, steps: &[Step]) -> Result<(), ScenarioError> {
    let mut open: Vec<&str> = Vec::new();
    for step in steps {
        let used: Vec<&str> = match &step.action {
            Action::Exec(exec) => {
                if exec.wait == Wait::Later {
                    open.extend(exec.name.as_deref());
                }
                continue;
            }
            Action::Await(names) => names.iter().map(String::as_str).collect(),
            Action::Abort(name) => vec![name],
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

/// Every blob read by name must be stored under it somewhere in the file.
pub(super) fn check_blob_names(
    file: &str,
    tree: &Node,
    runs: &[Script],
) -> Result<(), ScenarioError> {
    let steps = || runs.iter().flat_map(|run| &run.steps);
    let stored: Vec<&str> = steps()
        .filter_map(|step| match &step.action {
            Action::KvSet(set) => set.name.as_deref(),
            _ => None,
        })
        .collect();
    for step in steps() {
        if let Action::KvGet(get) = &step.action
            && let BlobKey::Name(name) = &get.key
            && !stored.contains(&name.as_str())
        {
            let message = format!("no kv_set in this file is named {name:?}");
            return Err(ScenarioError::at(file, step.line.max(tree.line), message));
        }
    }
    Ok(())
}
