//! Compares answers with what a step expects.

use serde_json::{Value, json};

use crate::sim::matcher::{self, show};
use crate::sim::scenario::ExecStep;
use crate::sim::schema::Shown;
use crate::sim::session::{Exec, Stop};

/// Compares a message with a pattern.
pub(super) fn check(what: &str, pattern: &Value, shown: &Shown) -> Result<(), Stop> {
    matcher::fits(pattern, shown).map_err(|mismatch| Stop::Failed(format!("{what}: {mismatch}")))
}

/// Whether a step takes a throw for an answer.
fn bears(step: &ExecStep, thrown: &Value) -> bool {
    let error = thrown["error"].as_str().unwrap_or_default();
    let words = step.may_throw.as_deref();
    words.is_some_and(|words| error.contains(words))
}

/// Compares what an exec brought with what it should have.
pub(super) fn check_exec(step: &ExecStep, exec: &Exec) -> Result<(), Stop> {
    match (&step.throws, &exec.thrown) {
        (Some(wanted), Some(thrown)) => {
            let error = thrown["error"].as_str().unwrap_or_default();
            if error.contains(wanted.as_str()) {
                return Ok(());
            }
            return Err(Stop::Failed(format!(
                "expected a throw with {wanted:?}, got {error:?}"
            )));
        }
        (Some(wanted), None) => {
            return Err(Stop::Failed(format!(
                "expected a throw with {wanted:?}, got {}",
                show(Some(&exec.summary().present))
            )));
        }
        (None, Some(thrown)) if bears(step, thrown) => return Ok(()),
        (None, Some(thrown)) => {
            return Err(Stop::Failed(format!(
                "expected a reply, got throw {}",
                show(Some(thrown))
            )));
        }
        (None, None) => {}
    }
    if let Some(pattern) = &step.expect {
        check("the reply", pattern, &exec.summary())?;
    }
    // Each wanted event must be found after the one before it.
    let mut rest = exec.replies.iter();
    for pattern in &step.replies {
        if !rest.any(|reply| matcher::fits(pattern, reply).is_ok()) {
            let got: Vec<&Value> = exec.replies.iter().map(|reply| &reply.present).collect();
            return Err(Stop::Failed(format!(
                "expected an event like {} in its place, got {}",
                show(Some(pattern)),
                show(Some(&json!(got)))
            )));
        }
    }
    Ok(())
}
