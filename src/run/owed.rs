//! Results that were given to the server, until one of its states knows them.
//!
//! A checkpoint may have been on its way when a result was given, and some come seconds after
//! the request they stand before. So a state is taken to know a result only if the server has
//! spoken in between: telling a model something twice does no harm, doing it twice may.

use crate::wire::state::Pending;

/// What somebody else does for the server: the host, or a person.
#[derive(Debug, Default)]
pub(super) struct Owed(Vec<Asked>);

/// A request of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Exec(u32),
    Question(u32),
}

/// Whether doing it twice would matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only looks.
    None,
    /// It may change something.
    Lasting,
}

#[derive(Debug)]
struct Asked {
    ask: Ask,
    effect: Effect,
    /// The server's name of the call; empty if it has none.
    call: String,
    /// The names the host knows it by.
    host: Vec<String>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nobody has answered.
    Open,
    /// The server was given the result.
    Told,
    /// It has spoken since.
    Heard,
}

impl Owed {
    /// A request is the host's to do, under a name of the host's.
    pub(super) fn ask(&mut self, ask: Ask, effect: Effect, call: &str, host: &str) {
        if let Some(asked) = self.0.iter_mut().find(|asked| asked.ask == ask) {
            asked.host.push(host.into());
            return;
        }
        self.0.push(Asked {
            ask,
            effect,
            call: call.into(),
            host: vec![host.into()],
            stage: Stage::Open,
        });
    }

    /// The server is given the result.
    pub(super) fn answered(&mut self, ask: Ask) {
        for asked in self.0.iter_mut().filter(|asked| asked.ask == ask) {
            asked.stage = Stage::Told;
        }
    }

    /// The model speaks: it has heard what it was told.
    pub(super) fn spoken(&mut self) {
        self.hear(|_| true);
    }

    /// The server says that a call is complete.
    pub(super) fn completed(&mut self, call: &str) {
        self.hear(|asked| asked.call == call);
    }

    fn hear(&mut self, which: impl Fn(&Asked) -> bool) {
        let told = |asked: &&mut Asked| asked.stage == Stage::Told && which(asked);
        for asked in self.0.iter_mut().filter(told) {
            asked.stage = Stage::Heard;
        }
    }

    /// A state came: what it knows is owed no longer.
    pub(super) fn checkpoint(&mut self, pending: &Pending) {
        self.0
            .retain(|asked| asked.stage != Stage::Heard || pending.names(&asked.call));
    }

    /// Whether nothing is left that must not be asked for a second time. What was answered
    /// under a name that `holds` can be answered again.
    pub(super) fn is_settled(&self, holds: impl Fn(&str) -> bool) -> bool {
        let harmless = |asked: &Asked| match asked.stage {
            _ if asked.effect == Effect::None => true,
            Stage::Open => false,
            Stage::Told | Stage::Heard => holds(&asked.call),
        };
        self.0.iter().all(harmless)
    }

    /// The host's names of calls whose results the newest state may not know.
    pub(super) fn unknown(&self) -> Vec<String> {
        self.0
            .iter()
            .flat_map(|asked| asked.host.iter().cloned())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(call: &str) -> Owed {
        let mut owed = Owed::default();
        owed.ask(Ask::Exec(1), Effect::Lasting, call, "host-1");
        owed
    }

    #[test]
    fn a_state_knows_a_result_once_the_model_has_spoken() {
        let mut owed = asked("c");
        owed.spoken();
        owed.checkpoint(&Pending::default());
        assert!(!owed.is_settled(|_| true), "nobody has answered");
        owed.answered(Ask::Exec(1));
        owed.checkpoint(&Pending::default());
        owed.checkpoint(&Pending::default());
        assert_eq!(owed.unknown(), ["host-1"], "they may be from before");
        assert!(owed.is_settled(|call| call == "c"), "it is on record");
        owed.completed("another");
        owed.checkpoint(&Pending::default());
        assert!(!owed.is_settled(|_| false));
        owed.completed("c");
        owed.checkpoint(&Pending::default());
        assert!(owed.is_settled(|_| false) && owed.unknown().is_empty());
    }

    #[test]
    fn a_state_that_says_it_waits_for_a_call_does() {
        let mut owed = asked("c");
        owed.answered(Ask::Exec(1));
        owed.spoken();
        let waits = Pending::of(["{\"id\":\"c\"}"]);
        owed.checkpoint(&waits);
        assert!(!owed.is_settled(|_| false));
        owed.checkpoint(&Pending::of(["{\"id\":\"d\"}"]));
        assert!(owed.is_settled(|_| false));
        let mut nameless = asked("");
        nameless.answered(Ask::Exec(1));
        nameless.spoken();
        nameless.checkpoint(&waits);
        assert!(nameless.is_settled(|_| false));
    }

    #[test]
    fn what_only_looks_may_be_asked_for_again_and_is_still_unknown() {
        let mut owed = Owed::default();
        owed.ask(Ask::Question(1), Effect::None, "", "a");
        owed.ask(Ask::Question(1), Effect::None, "", "b");
        assert!(owed.is_settled(|_| false));
        assert_eq!(owed.unknown(), ["a", "b"]);
    }
}
