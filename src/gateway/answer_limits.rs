//! Ends an answer where the client asked for it: at a stop sequence, or after a number of tokens.
//! Cursor has neither limit, so the gateway cuts the text and cancels the rest.

use agent::turn::usage;

/// Where an answer ends early.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct AnswerLimits {
    /// Texts that end the answer; they are not part of it.
    pub(super) stop: Vec<String>,
    /// How many tokens of text it may have, by our estimate.
    pub(super) max_tokens: Option<u64>,
}

/// Why an answer was cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cut {
    /// At this stop sequence.
    StopSequence(String),
    /// At the limit of tokens.
    Length,
}

/// Cuts the text of one answer.
#[derive(Debug)]
pub(super) struct AnswerCutter {
    limits: AnswerLimits,
    /// The end of the text, which may be the beginning of a stop sequence.
    held: String,
    /// How many UTF-16 units were passed on.
    passed: u64,
}

impl AnswerCutter {
    pub(super) fn new(limits: AnswerLimits) -> Self {
        Self {
            limits,
            held: String::new(),
            passed: 0,
        }
    }

    /// Adds text. Returns what may be sent, and why the answer ends here if it does.
    pub(super) fn push(&mut self, text: &str) -> (String, Option<Cut>) {
        let mut all = std::mem::take(&mut self.held);
        all.push_str(text);
        let found = self.limits.stop.iter().filter(|stop| !stop.is_empty());
        let found = found.filter_map(|stop| all.find(stop.as_str()).map(|at| (at, stop)));
        let cut = match found.min_by_key(|(at, _)| *at) {
            Some((at, stop)) => {
                let stop = stop.clone();
                all.truncate(at);
                Some(Cut::StopSequence(stop))
            }
            None => {
                self.held = all.split_off(self.safe_length(&all));
                None
            }
        };
        self.pass(all, cut)
    }

    /// Returns the text that was held back, when no more follows.
    pub(super) fn flush(&mut self) -> (String, Option<Cut>) {
        let held = std::mem::take(&mut self.held);
        self.pass(held, None)
    }

    fn pass(&mut self, mut text: String, cut: Option<Cut>) -> (String, Option<Cut>) {
        let units = usage::units(&text);
        let Some(max_tokens) = self.limits.max_tokens else {
            return (text, cut);
        };
        let room = max_tokens.saturating_mul(4).saturating_sub(self.passed);
        self.passed += units;
        if units <= room {
            return (text, cut);
        }
        let mut left = room;
        let end = text.char_indices().find(|(_, c)| {
            let size = c.len_utf16() as u64;
            let is_over = size > left;
            left = left.saturating_sub(size);
            is_over
        });
        text.truncate(end.map_or(text.len(), |(at, _)| at));
        (text, Some(Cut::Length))
    }

    /// Returns how much of a text cannot be the beginning of a stop sequence.
    fn safe_length(&self, text: &str) -> usize {
        let starts = text.char_indices().map(|(at, _)| at);
        let longest = self.limits.stop.iter().map(String::len).max().unwrap_or(0);
        let mut starts = starts.skip_while(|at| text.len() - at >= longest);
        let is_start = |at: &usize| {
            let tail = &text[*at..];
            self.limits.stop.iter().any(|stop| stop.starts_with(tail))
        };
        starts.find(is_start).unwrap_or(text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(limits: AnswerLimits, pieces: &[&str]) -> (String, Option<Cut>) {
        let mut cutter = AnswerCutter::new(limits);
        let mut sent = String::new();
        for piece in pieces {
            let (text, cut) = cutter.push(piece);
            sent.push_str(&text);
            if cut.is_some() {
                return (sent, cut);
            }
        }
        let (text, cut) = cutter.flush();
        sent.push_str(&text);
        (sent, cut)
    }

    #[test]
    fn an_answer_ends_at_the_first_stop_sequence_however_it_arrives() {
        let limits = AnswerLimits {
            stop: vec!["END".into(), "ä!".into(), String::new()],
            max_tokens: None,
        };
        let at = |stop: &str| Some(Cut::StopSequence(stop.into()));
        let cut = |pieces: &[&str]| cut(limits.clone(), pieces);
        assert_eq!(cut(&["one E", "N", "D two"]), ("one ".into(), at("END")));
        assert_eq!(cut(&["ENä", "! END"]), ("EN".into(), at("ä!")));
        assert_eq!(cut(&["EN", "EN", "d"]), ("ENENd".into(), None));
        assert_eq!(cut(&["the EN"]), ("the EN".into(), None));
    }

    #[test]
    fn an_answer_ends_after_its_tokens() {
        let limits = AnswerLimits {
            stop: Vec::new(),
            max_tokens: Some(2),
        };
        let cut = |pieces: &[&str]| cut(limits.clone(), pieces);
        assert_eq!(cut(&["1234", "5678"]), ("12345678".into(), None));
        assert_eq!(
            cut(&["1234", "56789"]),
            ("12345678".into(), Some(Cut::Length))
        );
        assert_eq!(cut(&["1234567😀"]), ("1234567".into(), Some(Cut::Length)));
    }
}
