//! Results that were given to the server, until one of its states knows them.
//!
//! A checkpoint may have been on its way when a result was given, and some come seconds after
//! the request they stand before. So a state is taken to know a result only if the server has
//! spoken in between: telling a model something twice does no harm, doing it twice may. A state
//! that says it waits for a result does not know it, and neither do those of the next stream
//! until that was given it.

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
    /// By the stream at hand; none if it has not asked.
    ask: Option<Ask>,
    effect: Effect,
    /// The server's name of the call; empty if it has none.
    call: String,
    /// The names the host knows it by.
    host: Vec<String>,
    stage: Stage,
    newest: Newest,
}

/// What the newest state says of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Newest {
    /// Nothing; it may know it or not.
    Silent,
    /// That it waits for it.
    Waits,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// An earlier stream was given the result, and this one was not.
    Before,
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
        if let Some(asked) = self.0.iter_mut().find(|asked| asked.ask == Some(ask)) {
            asked.host.push(host.into());
            return;
        }
        self.0.push(Asked {
            ask: Some(ask),
            effect,
            call: call.into(),
            host: vec![host.into()],
            stage: Stage::Open,
            newest: Newest::Silent,
        });
    }

    /// Another stream begins, where the newest state stands.
    pub(super) fn restart(&mut self) {
        let given = |asked: &Asked| asked.stage != Stage::Open && asked.newest == Newest::Waits;
        self.0.retain(given);
        for asked in &mut self.0 {
            (asked.ask, asked.stage) = (None, Stage::Before);
        }
    }

    /// A stream asked again, and was given the result an earlier one was given.
    pub(super) fn recalled(&mut self, call: &str) {
        let before = |asked: &&mut Asked| asked.stage == Stage::Before && asked.call == call;
        for asked in self.0.iter_mut().filter(before) {
            asked.stage = Stage::Told;
        }
    }

    /// The server is given the result.
    pub(super) fn answered(&mut self, ask: Ask) {
        for asked in self.0.iter_mut().filter(|asked| asked.ask == Some(ask)) {
            asked.stage = Stage::Told;
        }
    }

    /// The model speaks: it has heard what it was told.
    pub(super) fn spoken(&mut self) {
        self.hear(|asked| asked.stage == Stage::Told);
    }

    /// The server says that a call is complete.
    pub(super) fn completed(&mut self, call: &str) {
        self.hear(|asked| asked.stage != Stage::Open && asked.call == call);
    }

    fn hear(&mut self, which: impl Fn(&Asked) -> bool) {
        for asked in self.0.iter_mut().filter(|asked| which(asked)) {
            asked.stage = Stage::Heard;
        }
    }

    /// A state came: what it knows is owed no longer.
    pub(super) fn checkpoint(&mut self, pending: &Pending) {
        for asked in &mut self.0 {
            asked.newest = match pending.names(&asked.call) {
                true => Newest::Waits,
                // It does not know it all the same: nobody has told it.
                false if asked.stage == Stage::Before => Newest::Waits,
                false => Newest::Silent,
            };
        }
        self.0
            .retain(|asked| asked.stage != Stage::Heard || asked.newest == Newest::Waits);
    }

    /// Whether nothing is left that must not be asked for a second time. What was answered
    /// under a name that `holds` can be answered again.
    pub(super) fn is_settled(&self, holds: impl Fn(&str) -> bool) -> bool {
        let harmless = |asked: &Asked| match asked.stage {
            _ if asked.effect == Effect::None => true,
            Stage::Open => false,
            Stage::Before | Stage::Told | Stage::Heard => holds(&asked.call),
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
    fn what_a_state_waits_for_the_next_stream_does_not_know_until_it_is_told() {
        let waits = Pending::of(["{\"id\":\"c\"}"]);
        let late = |pending: &Pending| {
            let mut owed = asked("c");
            owed.answered(Ask::Exec(1));
            owed.checkpoint(pending);
            owed.restart();
            owed
        };
        // Nobody can tell what this one knows.
        assert!(late(&Pending::default()).unknown().is_empty());
        let mut owed = late(&waits);
        owed.spoken();
        owed.checkpoint(&Pending::default());
        // The numbers of a stream are its own.
        owed.answered(Ask::Exec(1));
        owed.restart();
        owed.spoken();
        owed.checkpoint(&Pending::default());
        assert_eq!(owed.unknown(), ["host-1"]);
        assert!(owed.is_settled(|call| call == "c"));
        owed.recalled("c");
        owed.spoken();
        owed.checkpoint(&Pending::default());
        assert!(owed.unknown().is_empty());
        let mut owed = late(&waits);
        owed.completed("c");
        owed.checkpoint(&Pending::default());
        assert!(owed.unknown().is_empty(), "the server has it");
        let mut owed = asked("c");
        owed.checkpoint(&waits);
        owed.restart();
        assert!(owed.unknown().is_empty(), "nobody has answered");
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
