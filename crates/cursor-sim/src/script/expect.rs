//! Compares answers with the expectations of a step.

use serde_json::{Value, json};

use crate::matcher::{self, excerpt};
use crate::scenario::ExecStep;
use crate::schema::MessageJson;
use crate::server_run::{Exec, RunStop};

/// Compares a message with a pattern.
pub(super) fn check(what: &str, pattern: &Value, message: &MessageJson) -> Result<(), RunStop> {
    matcher::matches_message(pattern, message)
        .map_err(|mismatch| RunStop::Failed(format!("{what}: {mismatch}")))
}

/// Returns whether a step accepts this throw as an answer.
fn allows_throw(step: &ExecStep, thrown: &Value) -> bool {
    let error = thrown["error"].as_str().unwrap_or_default();
    let allowed = step.may_throw.as_deref();
    allowed.is_some_and(|part| error.contains(part))
}

/// Compares the replies to an exec with the expectations of its step.
pub(super) fn check_exec(step: &ExecStep, exec: &Exec) -> Result<(), RunStop> {
    match (&step.throws, &exec.thrown) {
        (Some(expected), Some(thrown)) => {
            let error = thrown["error"].as_str().unwrap_or_default();
            if error.contains(expected.as_str()) {
                return Ok(());
            }
            return Err(RunStop::Failed(format!(
                "expected a throw with {expected:?}, got {error:?}"
            )));
        }
        (Some(expected), None) => {
            return Err(RunStop::Failed(format!(
                "expected a throw with {expected:?}, got {}",
                excerpt(Some(&exec.summary().present))
            )));
        }
        (None, Some(thrown)) if allows_throw(step, thrown) => return Ok(()),
        (None, Some(thrown)) => {
            return Err(RunStop::Failed(format!(
                "expected a reply, got throw {}",
                excerpt(Some(thrown))
            )));
        }
        (None, None) => {}
    }
    if let Some(pattern) = &step.expect {
        check("the reply", pattern, &exec.summary())?;
    }
    // Each expected event must come after the previous one.
    let mut rest = exec.replies.iter();
    for pattern in &step.replies {
        if !rest.any(|reply| matcher::matches_message(pattern, reply).is_ok()) {
            let got: Vec<&Value> = exec.replies.iter().map(|reply| &reply.present).collect();
            return Err(RunStop::Failed(format!(
                "expected an event like {} in order, got {}",
                excerpt(Some(pattern)),
                excerpt(Some(&json!(got)))
            )));
        }
    }
    Ok(())
}
