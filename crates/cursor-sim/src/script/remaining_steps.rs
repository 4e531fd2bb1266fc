//! Resumable scripts: an attempt skips the steps that its conversation already contains, as a
//! model does that reads its own answer. A test can then disconnect the client anywhere and see
//! what it repeats or loses.

use serde_json::Value;

use super::{Player, ScenarioStep, StepAction};
use crate::history;
use crate::scenario::DEFAULT_LIMIT;
use crate::server_run::RunStop;

impl Player<'_> {
    /// Returns the indexes of the steps that are left to play.
    pub(super) async fn remaining_steps(
        &mut self,
        steps: &[ScenarioStep],
    ) -> Result<Vec<usize>, RunStop> {
        let past = history::read(self.run, self.request, DEFAULT_LIMIT).await?;
        let mut known: Vec<&str> = past.iter().map(|message| message.text.as_str()).collect();
        known.extend(self.request.user_text());
        Ok(remaining(steps, &known))
    }
}

/// Returns the steps after the last known one, and the unknown ones among the execs that were
/// left open together with it.
fn remaining(steps: &[ScenarioStep], known: &[&str]) -> Vec<usize> {
    let contains = |part: &str| known.iter().any(|text| text.contains(part));
    let is_known = |step: &ScenarioStep| match &step.action {
        StepAction::Send(message) => delta_text(message).is_some_and(|text| contains(text.trim())),
        StepAction::Exec(exec) => exec.answer_marker.as_deref().is_some_and(contains),
        _ => false,
    };
    let next = steps.iter().rposition(is_known).map_or(0, |last| last + 1);
    let is_open =
        |step: &&ScenarioStep| matches!(&step.action, StepAction::Exec(exec) if exec.leave_open);
    let batch = steps[..next].iter().rev().take_while(is_open).count();
    let missing = (next - batch..next).filter(|index| !is_known(&steps[*index]));
    missing.chain(next..steps.len()).collect()
}

/// Returns the text of a delta, unless it is blank.
fn delta_text(message: &Value) -> Option<&str> {
    let text = message["interactionUpdate"]["textDelta"]["text"].as_str()?;
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::scenario::{ScenarioLibrary, ScenarioSource};

    #[test]
    fn an_attempt_continues_after_the_last_known_step() {
        // Older files use the second pair of names.
        for (resumable, answered_if) in [("resumable", "answered_if"), ("story", "told")] {
            let text = format!(
                r#"
                name = "resumable"
                [[run]]
                {resumable} = true
                steps = [
                  {{ text = "one " }},
                  {{ exec = {{ mcpArgs = {{ name = "ask" }} }}, {answered_if} = "yes" }},
                  {{ text = "two " }},
                  {{ end = true }},
                ]"#
            );
            let label = "resumable.toml".into();
            let library = ScenarioLibrary::load(&[ScenarioSource::Toml { label, text }]).unwrap();
            let script = &library.only().unwrap().runs[0];
            assert!(script.resumable);
            let left = |known: &[&str]| remaining(&script.steps, known);
            assert_eq!(left(&["tell me"]), [0, 1, 2, 3]);
            assert_eq!(left(&["tell me", "one"]), [1, 2, 3]);
            assert_eq!(left(&["tell me", "one", "they said yes"]), [2, 3]);
            assert_eq!(left(&["tell me", "one two"]), [3]);
        }
    }

    #[test]
    fn only_unanswered_execs_of_a_batch_are_sent_again() {
        let text = r#"
            name = "resumable"
            [[run]]
            resumable = true
            steps = [
              { text = "one " },
              { exec = { mcpArgs = { name = "a" } }, answered_if = "found-a", open = true, name = "a" },
              { exec = { mcpArgs = { name = "b" } }, answered_if = "found-b", open = true, name = "b" },
              { exec = { mcpArgs = { name = "c" } }, answered_if = "found-c", open = true, name = "c" },
              { await = [ "b", "a", "c" ] },
              { text = "two " },
            ]"#;
        let (label, text) = ("resumable.toml".into(), text.into());
        let library = ScenarioLibrary::load(&[ScenarioSource::Toml { label, text }]).unwrap();
        let steps = &library.only().unwrap().runs[0].steps;
        assert_eq!(remaining(steps, &["one", "found-b"]), [1, 3, 4, 5]);
        assert_eq!(remaining(steps, &["one", "found-c"]), [1, 2, 4, 5]);
        assert_eq!(remaining(steps, &["one two"]), [0_usize; 0]);
    }
}
