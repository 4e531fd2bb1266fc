//! A story is told once: an attempt that brings a conversation goes on behind what that
//! conversation knows, as a model does that reads its own words. So a client can be cut off
//! anywhere, and what it repeats or loses shows.

use serde_json::Value;

use super::{Action, Player, Step};
use crate::sim::history;
use crate::sim::scenario::{DEFAULT_LIMIT, Wait};
use crate::sim::session::Stop;

impl Player<'_> {
    /// The steps that are left to play.
    pub(super) async fn unheard(&mut self, steps: &[Step]) -> Result<Vec<usize>, Stop> {
        let past = history::recall(self.session, self.request, DEFAULT_LIMIT).await?;
        let mut known: Vec<&str> = past.iter().map(|message| message.text.as_str()).collect();
        known.extend(self.request.user_text());
        Ok(left(steps, &known))
    }
}

/// The steps behind the last one that is known, and those asked for together with it that are
/// not.
fn left(steps: &[Step], known: &[&str]) -> Vec<usize> {
    let heard = |words: &str| known.iter().any(|text| text.contains(words));
    let past = |step: &Step| match &step.action {
        Action::Send(message) => said(message).is_some_and(|text| heard(text.trim())),
        Action::Exec(exec) => exec.told.as_deref().is_some_and(heard),
        _ => false,
    };
    let behind = steps.iter().rposition(past).map_or(0, |last| last + 1);
    let together =
        |step: &&Step| matches!(&step.action, Action::Exec(exec) if exec.wait == Wait::Later);
    let round = steps[..behind].iter().rev().take_while(together).count();
    let missing = (behind - round..behind).filter(|index| !past(&steps[*index]));
    missing.chain(behind..steps.len()).collect()
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
        assert_eq!(left(steps, &["tell me"]), [0, 1, 2, 3]);
        assert_eq!(left(steps, &["tell me", "one"]), [1, 2, 3]);
        assert_eq!(left(steps, &["tell me", "one", "they said yes"]), [2, 3]);
        assert_eq!(left(steps, &["tell me", "one two"]), [3]);
    }

    #[test]
    fn of_a_round_only_what_is_missing_is_asked_for_again() {
        let text = r#"
            name = "story"
            [[run]]
            story = true
            steps = [
              { text = "one " },
              { exec = { mcpArgs = { name = "a" } }, told = "found-a", open = true, name = "a" },
              { exec = { mcpArgs = { name = "b" } }, told = "found-b", open = true, name = "b" },
              { exec = { mcpArgs = { name = "c" } }, told = "found-c", open = true, name = "c" },
              { await = [ "b", "a", "c" ] },
              { text = "two " },
            ]"#;
        let (label, text) = ("story.toml".into(), text.into());
        let library = Library::load(&[Source::Toml { label, text }]).unwrap();
        let steps = &library.lone().unwrap().runs[0].steps;
        assert_eq!(left(steps, &["one", "found-b"]), [1, 3, 4, 5]);
        assert_eq!(left(steps, &["one", "found-c"]), [1, 2, 4, 5]);
        assert_eq!(left(steps, &["one two"]), [0_usize; 0]);
    }
}
