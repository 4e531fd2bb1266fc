//! What a host brings back for a run that is gone, read from its own history.
//!
//! A turn begins with the last words of the person before the model's last answer; the turns
//! before it are complete. Everything is counted in the host's messages, never in what we made
//! of them, so that a turn that came back once can come back again.

use serde_json::Value as Json;

use super::answer::{Gap, gap, is_answer};
use super::fingerprint::Fingerprint;
use super::journal::PausedCall;
use super::message::{self, Pictures, Speaker, read, read_with};
use super::picture::{self, Picture};
use super::plan::about;
use super::recovery::{Loss, Point, Request};
use super::wrap::{Recovered, Verdict, collapse, wrap};
use crate::prompts::{WORK_SINCE_CHECKPOINT, imitates_recovered_result};

/// Where in a history a turn begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Its first message.
    pub start: usize,
    /// Complete turns before it.
    pub turns: usize,
    /// Their fingerprint.
    pub history: String,
}

impl Place {
    /// The place of the turn that answers `messages`.
    pub fn of(messages: &[Json]) -> Self {
        let spoken = |message: &Json| message["role"] == "user";
        let start = messages.iter().rposition(spoken).unwrap_or(0);
        let before = &messages[..start];
        Self {
            start,
            turns: before.iter().filter(|message| spoken(message)).count(),
            history: Fingerprint::of("", before).digest(),
        }
    }

    /// As the planner asks for it.
    pub fn point(&self) -> Point<'_> {
        Point {
            turns: self.turns,
            history: &self.history,
        }
    }
}

/// A turn whose tools have answered, though nobody waits for them.
#[derive(Debug, Clone, PartialEq)]
pub struct Comeback<'a> {
    messages: &'a [Json],
    /// Where the turn begins.
    pub place: Place,
    /// The answer that asked for the tools.
    last: usize,
    calls: Vec<&'a str>,
    received: Vec<&'a str>,
}

/// What a new run is told.
#[derive(Debug, Clone, PartialEq)]
pub struct News {
    /// In words; empty if there is none.
    pub text: String,
    /// Pictures of the results, and of what the person said besides.
    pub pictures: Vec<Picture>,
    /// Results in the text.
    pub results: usize,
    /// Whether a result looks like the marks around it.
    pub lookalike: bool,
    /// What the state has answered and the host does not have: shown first.
    pub unshown: String,
}

impl<'a> Comeback<'a> {
    /// Reads a history; `None` if it does not end with results of tools.
    pub fn read(messages: &'a [Json]) -> Option<Self> {
        let last = messages
            .iter()
            .rposition(|message| message["role"] == "assistant")?;
        let place = Place::of(&messages[..last]);
        let under_way = &messages[place.start..];
        if calls(&messages[last]).next().is_none() || !messages[last..].iter().any(is_result) {
            return None;
        }
        Some(Self {
            messages,
            last,
            calls: under_way.iter().flat_map(calls).collect(),
            received: under_way
                .iter()
                .filter(|message| is_result(message))
                .filter_map(|message| message["toolCallId"].as_str())
                .collect(),
            place,
        })
    }

    /// As the planner asks for it.
    pub fn request<'b>(&'b self, session: Option<&'b str>, loss: Loss) -> Request<'b> {
        Request {
            session,
            at: self.place.point(),
            in_flight: Some(self.calls.clone()),
            received: self.received.clone(),
            loss,
        }
    }

    /// The person's pictures that opened the turn.
    pub fn has_pictures(&self) -> bool {
        self.messages
            .get(self.place.start)
            .and_then(|message| message["content"].as_array())
            .is_some_and(|blocks| blocks.iter().any(|block| block["type"] == "image"))
    }

    /// The history a rebuilt run starts from: complete turns, and the one under way without
    /// its results.
    pub fn history(&self) -> Vec<Json> {
        let kept =
            |(index, message): &(usize, &Json)| *index < self.place.start || !is_result(message);
        let told = self.messages[..=self.last].iter().enumerate();
        told.filter(kept)
            .map(|(_, message)| message.clone())
            .collect()
    }

    /// What a state has to be told that knows the first `known` messages and, if that was
    /// counted, so much of the answer to them. Calls of that answer are Cursor's own: their
    /// results go by the names in `asked`, those of later answers by the names these are told
    /// with.
    pub fn since(&self, known: usize, answer: Option<&str>, asked: &[PausedCall]) -> News {
        let new = &self.messages[known.min(self.messages.len())..];
        let spoke = self.messages[self.last..]
            .iter()
            .any(|message| message["role"] == "user");
        let gap = gap(answer, new);
        let (mut told, mut note, mut unshown) = (None, None, String::new());
        match gap {
            Gap::Unknown(words) => told = Some(words.trim().to_owned()),
            // After an abort, the person does not want the rest.
            Gap::Unshown(_) if spoke && is_answer(new.first()) => note = about(&gap),
            Gap::Unshown(words) => unshown = words,
            Gap::None => {}
        }
        // Its own answer comes first and is part of the state; later ones are not.
        let later = self
            .messages
            .iter()
            .enumerate()
            .take(self.last + 1)
            .skip(known)
            .filter(|(_, message)| message["role"] == "assistant")
            .skip(1)
            .filter_map(|(_, message)| read(message))
            .map(|spoken| spoken.text);
        let answers = told.into_iter().chain(later).collect();
        let own = self.messages[known.min(self.messages.len())..]
            .iter()
            .find(|message| is_answer(Some(message)));
        let own: Vec<&str> = own.into_iter().flat_map(calls).collect();
        let named = |id: &str| {
            let call = asked.iter().find(|call| call.id == id);
            call.filter(|_| own.contains(&id))
        };
        let news = self.news(answers, known.max(self.place.start), None, named);
        let text = match note {
            Some(note) => format!("{note}\n\n{}", news.text),
            None => news.text,
        };
        News {
            text,
            unshown,
            ..news
        }
    }

    /// What a rebuilt run is told: all results. The pictures of the turn's first words are
    /// told again, for a history has none.
    pub fn anew(&self) -> News {
        let first = self.messages.get(self.place.start);
        self.news(Vec::new(), self.place.start, first, |_| None)
    }

    fn news<'b>(
        &self,
        answers: Vec<String>,
        from: usize,
        shown_again: Option<&Json>,
        named: impl Fn(&str) -> Option<&'b PausedCall>,
    ) -> News {
        let results: Vec<&Json> = self.messages[from.min(self.messages.len())..]
            .iter()
            .filter(|message| is_result(message))
            .collect();
        let after = &self.messages[(self.last + 1).max(from).min(self.messages.len())..];
        let words: Vec<&Json> = after.iter().filter(|message| !is_result(message)).collect();
        let with_pictures = shown_again.into_iter().chain(results.iter().copied());
        let (pictures, sent) = picture::that_fit(with_pictures.chain(words.iter().copied()));
        let mut sent = sent.into_iter().skip(usize::from(shown_again.is_some()));
        let mut sent = || sent.next().unwrap_or(Pictures::Omitted);
        let results = results.into_iter().map(|message| {
            let id = message["toolCallId"].as_str().unwrap_or_default();
            let call = named(id);
            Recovered {
                call: call.and_then(cursors).unwrap_or_else(|| id.into()),
                tool: call.map(|call| call.tool.clone()),
                content: message::text(&message["content"], sent()),
                verdict: match message["isError"] {
                    Json::Bool(true) => Verdict::Failed,
                    _ => Verdict::Done,
                },
            }
        });
        let results = collapse(results.collect());
        let mut parts = Vec::new();
        if !answers.is_empty() {
            parts.push(WORK_SINCE_CHECKPOINT.into());
            parts.extend(answers);
        }
        if !results.is_empty() {
            parts.push(wrap(&results));
        }
        let words = words
            .into_iter()
            .filter_map(|message| read_with(message, sent()));
        let words = words.filter(|spoken| spoken.speaker == Speaker::User);
        parts.extend(words.map(|spoken| spoken.text));
        News {
            text: parts.join("\n\n"),
            pictures,
            lookalike: results
                .iter()
                .any(|result| imitates_recovered_result(&result.content)),
            results: results.len(),
            unshown: String::new(),
        }
    }
}

fn is_result(message: &Json) -> bool {
    message["role"] == "toolResult"
}

/// Cursor's own name of a call. It may have several lines, which would pass for others of the
/// block it is told in.
pub(super) fn cursors(call: &PausedCall) -> Option<String> {
    let id = call.cursor.as_deref()?;
    Some(id.lines().collect::<Vec<_>>().join(" "))
}

/// The ids of the calls in an answer.
pub(super) fn calls(message: &Json) -> impl Iterator<Item = &str> {
    let blocks = match message["role"].as_str() {
        Some("assistant") => message["content"].as_array().map_or(&[][..], Vec::as_slice),
        _ => &[],
    };
    blocks
        .iter()
        .filter(|block| block["type"] == "toolCall")
        .filter_map(|block| block["id"].as_str())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn user(text: &str) -> Json {
        json!({"role": "user", "content": text})
    }

    fn asks(text: &str, ids: &[&str]) -> Json {
        let mut blocks = vec![json!({"type": "text", "text": text})];
        let call =
            |id: &&str| json!({"type": "toolCall", "id": id, "name": "look", "arguments": {}});
        blocks.extend(ids.iter().map(call));
        json!({"role": "assistant", "content": blocks})
    }

    fn result(id: &str, text: &str) -> Json {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "look", "content": text})
    }

    /// Two turns; in the second, two rounds of tools.
    fn rounds() -> Vec<Json> {
        vec![
            user("hello"),
            asks("hi", &[]),
            user("go"),
            asks("first", &["t1"]),
            result("t1", "one"),
            asks("second", &["t2"]),
            result("t2", "two"),
        ]
    }

    #[test]
    fn a_pause_and_its_comeback_are_at_the_same_place() {
        let messages = rounds();
        let come = Comeback::read(&messages).unwrap();
        assert_eq!((come.place.start, come.place.turns), (2, 1));
        // The pause of either round was written down with what was known then.
        for known in [3, 5] {
            assert_eq!(Place::of(&messages[..known]), come.place);
        }
        let request = come.request(None, Loss::Gone);
        assert_eq!(request.in_flight, Some(vec!["t1", "t2"]));
        assert_eq!(request.received, ["t1", "t2"]);
        assert_ne!(Place::of(&messages[..1]).history, come.place.history);
    }

    #[test]
    fn only_results_after_the_last_answer_are_a_comeback() {
        let messages = rounds();
        assert!(Comeback::read(&messages[..6]).is_none(), "not answered");
        assert!(Comeback::read(&messages[..3]).is_none(), "not asked");
        assert!(Comeback::read(&[]).is_none());
        let answered = [rounds(), vec![asks("done", &[])]].concat();
        assert!(Comeback::read(&answered).is_none());
    }

    #[test]
    fn s12_text_between_calls_is_kept_and_results_are_told_apart() {
        let messages = rounds();
        let come = Comeback::read(&messages).unwrap();
        let history = come.history();
        let roles: Vec<&str> = history.iter().filter_map(|m| m["role"].as_str()).collect();
        assert_eq!(
            roles,
            ["user", "assistant", "user", "assistant", "assistant"]
        );
        assert_eq!(history[4]["content"][0]["text"], "second");
        let news = come.anew();
        assert_eq!((news.results, news.lookalike), (2, false));
        assert!(news.text.contains("\none\n") && news.text.contains("\ntwo\n"));
    }

    #[test]
    fn a_state_is_told_what_it_does_not_know() {
        let mut messages = rounds();
        messages.push(user("and hurry"));
        let come = Comeback::read(&messages).unwrap();
        // From before the first call: both rounds.
        let news = come.since(3, None, &[]);
        assert_eq!(news.results, 2);
        assert!(news.text.contains("second\nTool call (look, call t2)"));
        assert!(
            !news.text.contains("first"),
            "its own answer: {}",
            news.text
        );
        assert!(news.text.ends_with("]\n\nand hurry"));
        // From the second round: only its result.
        let news = come.since(5, None, &[]);
        assert_eq!(news.results, 1);
        assert!(
            news.text.starts_with("[Recovered tool output"),
            "{}",
            news.text
        );
        // What it does not know of its own answer; what the host does not have of it.
        let news = come.since(3, Some("fir"), &[]);
        assert!(
            news.text.contains("turn:]\n\nst\n\nsecond"),
            "{}",
            news.text
        );
        let news = come.since(3, Some("first of all"), &[]);
        assert!(
            news.text
                .contains("starting here:]\n\nof all\n\n[You did this"),
            "{}",
            news.text
        );
        assert_eq!(news.unshown, "", "the person speaks");
        let silent = &messages[..7];
        let news = Comeback::read(silent)
            .unwrap()
            .since(5, Some("second, well"), &[]);
        assert_eq!(news.unshown, ", well");
        // From after the results: only the words; and then nothing.
        assert_eq!(come.since(7, None, &[]).text, "and hurry");
        assert_eq!(come.since(8, None, &[]).text, "");
    }

    #[test]
    fn results_go_by_the_names_the_model_knows() {
        let messages = rounds();
        let come = Comeback::read(&messages).unwrap();
        let paused = |id: &str, cursor: &str| PausedCall {
            id: id.into(),
            tool: "look".into(),
            cursor: Some(cursor.into()),
        };
        let asked = [paused("t1", "call_1\nfc_1"), paused("t2", "call_2")];
        // From before the first call: Cursor's own, then one that is told of by our name.
        let told = come.since(3, None, &asked).text;
        assert!(
            told.contains("Tool call id: call_1 fc_1\nTool name: look\nResult:\none\n"),
            "{told}"
        );
        assert!(told.contains("(look, call t2)"), "{told}");
        assert!(told.contains("Tool call id: t2\nResult:\ntwo\n"), "{told}");
        let told = come.since(5, None, &asked).text;
        assert!(
            told.contains("Tool call id: call_2\nTool name: look\n"),
            "{told}"
        );
        // A rebuilt history has our names only.
        assert!(!come.anew().text.contains("call_"));
    }

    #[test]
    fn s30_pictures_of_results_and_words_come_along() {
        let picture = json!({"type": "image", "data": PNG, "mimeType": "image/png"});
        let mut messages = rounds();
        messages[2] = json!({"role": "user", "content": [{"type": "text", "text": "go"}, picture]});
        messages[6]["content"] = json!([{"type": "text", "text": "see"}, picture]);
        messages[6]["isError"] = json!(true);
        let bad = json!({"type": "image", "data": "QUJD", "mimeType": "image/png"});
        messages.push(json!({"role": "user", "content": [{"type": "text", "text": "this"}, bad]}));
        let come = Comeback::read(&messages).unwrap();
        assert!(come.has_pictures());
        let news = come.since(5, None, &[]);
        assert_eq!(news.pictures.len(), 1);
        assert!(
            news.text
                .contains("Error: true\nResult:\nsee\n[image attached]\n")
        );
        assert!(news.text.ends_with("this\n[image omitted from transcript]"));
        assert_eq!(come.anew().pictures.len(), 2, "that of the first words too");
    }
}
