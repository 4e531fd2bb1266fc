//! A story is told once: an attempt that brings a conversation goes on behind what that
//! conversation knows, as a model does that reads its own words. So a client can be cut off
//! anywhere, and what it repeats or loses shows.

use serde_json::Value;

use super::{Action, Player, Step};
use crate::sim::history;
use crate::sim::scenario::DEFAULT_LIMIT;
use crate::sim::session::Stop;

impl Player<'_> {
    /// The step to begin with.
    pub(super) async fn heard_before(&mut self, steps: &[Step]) -> Result<usize, Stop> {
        let past = history::recall(self.session, self.request, DEFAULT_LIMIT).await?;
        let mut known: Vec<&str> = past.iter().map(|message| message.text.as_str()).collect();
        known.extend(self.request.user_text());
        Ok(next(steps, &known))
    }
}

/// The step behind the last one that is known.
fn next(steps: &[Step], known: &[&str]) -> usize {
    let heard = |words: &str| known.iter().any(|text| text.contains(words));
    let past = |step: &Step| match &step.action {
        Action::Send(message) => said(message).is_some_and(|text| heard(text.trim())),
        Action::Exec(exec) => exec.told.as_deref().is_some_and(heard),
        _ => false,
    };
    steps.iter().rposition(past).map_or(0, |last| last + 1)
}

/// The words of a delta, if there are any.
fn said(message: &Value) -> Option<&str> {
    let text = message["interactionUpdate"]["textDelta"]["text"].as_str()?;
    (!text.trim().is_empty()).then_some(text)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::sim::scenario::{Library, Source};

    #[test]
    fn a_story_goes_on_behind_what_is_known() {
        let text = r#"
            name = "story"
            [[run]]
            story = true
            steps = [
              { text = "one " },
              { exec = { mcpArgs = { name = "ask" } }, told = "yes" },
              { text = "two " },
              { end = true },
            ]"#;
        let (label, text) = ("story.toml".into(), text.into());
        let library = Library::load(&[Source::Toml { label, text }]).unwrap();
        let steps = &library.lone().unwrap().runs[0].steps;
        assert_eq!(next(steps, &["tell me"]), 0);
        assert_eq!(next(steps, &["tell me", "one"]), 1);
        assert_eq!(next(steps, &["tell me", "one", "they said yes"]), 2);
        assert_eq!(next(steps, &["tell me", "one two"]), 3);
    }
}
