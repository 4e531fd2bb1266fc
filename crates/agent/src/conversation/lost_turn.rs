//! Restarts a turn whose run was lost, from the tool results in the host's history.
//!
//! A turn starts with the user's last message before the model's last answer; the turns before it
//! are complete. Positions are counted in the host's messages, never in text we derived from them,
//! so that a turn that was restarted once can be restarted again.

use super::answer_diff::{AnswerGap, gap};
use super::fingerprint::Fingerprint;
use super::flat_message::{self, ImageHandling, Role, flatten, flatten_with};
use super::image::{self, DecodedImage};
use super::journal::{PausedTurn, PendingCall};
use super::recovery::{LossKind, RecoveryRequest, TurnPosition};
use super::result_envelope::{RecoveredResult, keep_last_results, wrap_results};
use super::send_plan::gap_note;
use crate::message::{Message, ToolResult, short_hash};
use crate::prompts::{WORK_SINCE_CHECKPOINT, imitates_recovered_result};

/// The length of the hash of a history as earlier sidecars stored it in a pause.
const EARLIER_HASH: usize = 16;

/// Where in a history a turn starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TurnStart {
    /// Index of its first message.
    pub start: usize,
    /// Number of complete turns before it.
    pub turns: usize,
    /// The hash of those turns.
    pub history: String,
}

impl TurnStart {
    /// Returns the start of the turn that answers `messages`.
    pub fn of(messages: &[Message]) -> Self {
        let start = messages.iter().rposition(Message::is_user).unwrap_or(0);
        let before = &messages[..start];
        Self {
            start,
            turns: before.iter().filter(|message| message.is_user()).count(),
            history: Fingerprint::of("", before).history().to_string(),
        }
    }

    /// Returns the form the recovery planner uses.
    pub fn position(&self) -> TurnPosition<'_> {
        TurnPosition {
            turns: self.turns,
            history: &self.history,
        }
    }
}

/// Replaces the hash of the turns before a pause if an earlier sidecar stored it, in its own form, and
/// it is of this history.
pub fn update_pause(pause: &mut PausedTurn, messages: &[Message]) {
    if pause.history.len() != EARLIER_HASH {
        return;
    }
    let Some(last) = messages.iter().rposition(Message::is_answer) else {
        return;
    };
    let place = TurnStart::of(&messages[..last]);
    let mut hashes = String::new();
    for (index, message) in messages[..place.start].iter().enumerate() {
        message.hash(index).with_hex(|hex| hashes.push_str(hex));
    }
    if short_hash(hashes) == pause.history {
        pause.history = place.history;
    }
}

/// A turn whose tools have returned results although its run no longer exists.
#[derive(Debug, Clone, PartialEq)]
pub struct LostTurn<'a> {
    messages: &'a [Message],
    /// Where the turn starts.
    pub turn_start: TurnStart,
    /// Index of the answer that called the tools.
    last: usize,
    /// Ids of all tool calls of the turn.
    calls: Vec<&'a str>,
    /// Ids of the calls that have a result.
    received: Vec<&'a str>,
}

/// What a new run is sent.
#[derive(Debug, Clone, PartialEq)]
pub struct ResumePrompt {
    /// The message text; empty if there is nothing to send.
    pub text: String,
    /// Images of the results and of the user's additional messages.
    pub images: Vec<DecodedImage>,
    /// Number of results in the text.
    pub results: usize,
    /// Whether a result imitates the delimiters around it.
    pub lookalike: bool,
    /// Text that is in the checkpoint but not in the host's history; shown before the new answer.
    pub unshown: String,
}

impl<'a> LostTurn<'a> {
    /// Reads a history; `None` if it does not end with tool results.
    pub fn read(messages: &'a [Message]) -> Option<Self> {
        let last = messages.iter().rposition(Message::is_answer)?;
        // Almost every turn ends here, so this is checked before the whole history is read.
        if !messages[last..].iter().any(is_result) || messages[last].call_ids().next().is_none() {
            return None;
        }
        let turn_start = TurnStart::of(&messages[..last]);
        let current_turn = &messages[turn_start.start..];
        Some(Self {
            messages,
            last,
            calls: current_turn.iter().flat_map(Message::call_ids).collect(),
            received: current_turn
                .iter()
                .filter_map(Message::as_tool_result)
                .map(|result| result.call_id.as_str())
                .collect(),
            turn_start,
        })
    }

    /// Returns the input for the recovery planner.
    pub fn request<'b>(&'b self, session: Option<&'b str>, loss: LossKind) -> RecoveryRequest<'b> {
        RecoveryRequest {
            session,
            at: self.turn_start.position(),
            in_flight: Some(self.calls.clone()),
            received: self.received.clone(),
            loss,
        }
    }

    /// Returns whether the user's message that started the turn has images.
    pub fn has_images(&self) -> bool {
        self.messages
            .get(self.turn_start.start)
            .is_some_and(Message::has_images)
    }

    /// Returns the history that a rebuilt run starts from: all complete turns, and the current
    /// turn without its results.
    pub fn history(&self) -> Vec<Message> {
        let kept = |(index, message): &(usize, &Message)| {
            *index < self.turn_start.start || !is_result(message)
        };
        let messages = self.messages[..=self.last].iter().enumerate();
        messages
            .filter(kept)
            .map(|(_, message)| message.clone())
            .collect()
    }

    /// Returns what to send to a run that resumes a checkpoint. The checkpoint includes the first
    /// `known` messages and, if `answer` is given, that much of the answer to them. Calls in that
    /// answer are Cursor's own, so their results are sent with Cursor's ids from `paused_calls`. Later
    /// answers are not part of the checkpoint; the results of their calls are sent with the host's
    /// ids, which appear in the text.
    pub fn prompt_since(
        &self,
        known: usize,
        answer: Option<&str>,
        paused_calls: &[PendingCall],
    ) -> ResumePrompt {
        let new = &self.messages[known.min(self.messages.len())..];
        let user_spoke = self.messages[self.last..].iter().any(Message::is_user);
        let gap = gap(answer, new);
        let (mut answer_text, mut note, mut unshown) = (None, None, String::new());
        match gap {
            AnswerGap::Unknown(text) => answer_text = Some(text.trim().to_owned()),
            // The user aborted the answer and does not want the rest.
            AnswerGap::Unshown(_) if user_spoke && new.first().is_some_and(Message::is_answer) => {
                note = gap_note(&gap)
            }
            AnswerGap::Unshown(text) => unshown = text,
            AnswerGap::None => {}
        }
        // The checkpoint's own answer comes first and is part of it; later answers are not.
        let later = self
            .messages
            .iter()
            .enumerate()
            .take(self.last + 1)
            .skip(known)
            .filter(|(_, message)| message.is_answer())
            .skip(1)
            .filter_map(|(_, message)| flatten(message))
            .map(|message| message.text);
        let answers = answer_text.into_iter().chain(later).collect();
        let own = new.iter().find(|message| message.is_answer());
        let own: Vec<&str> = own.into_iter().flat_map(Message::call_ids).collect();
        let named = |id: &str| {
            let call = paused_calls.iter().find(|call| call.id == id);
            call.filter(|_| own.contains(&id))
        };
        let prompt = self.prompt(answers, known.max(self.turn_start.start), None, named);
        let text = match note {
            Some(note) => format!("{note}\n\n{}", prompt.text),
            None => prompt.text,
        };
        ResumePrompt {
            text,
            unshown,
            ..prompt
        }
    }

    /// Returns what to send to a rebuilt run: all results. The images of the turn's first message
    /// are sent again, because a rebuilt history contains none.
    pub fn full_prompt(&self) -> ResumePrompt {
        let first = self.messages.get(self.turn_start.start);
        self.prompt(Vec::new(), self.turn_start.start, first, |_| None)
    }

    fn prompt<'b>(
        &self,
        answers: Vec<String>,
        from: usize,
        shown_again: Option<&Message>,
        named: impl Fn(&str) -> Option<&'b PendingCall>,
    ) -> ResumePrompt {
        let results: Vec<&Message> = self.messages[from.min(self.messages.len())..]
            .iter()
            .filter(|message| is_result(message))
            .collect();
        let after = &self.messages[(self.last + 1).max(from).min(self.messages.len())..];
        let additional: Vec<&Message> =
            after.iter().filter(|message| !is_result(message)).collect();
        let with_images = shown_again.into_iter().chain(results.iter().copied());
        let (images, sent) = image::decode_fitting(with_images.chain(additional.iter().copied()));
        let mut sent = sent.into_iter().skip(usize::from(shown_again.is_some()));
        let mut sent = || sent.next().unwrap_or(ImageHandling::Omitted);
        let results = results.into_iter().filter_map(Message::as_tool_result);
        let results =
            results.map(|result| recovered_result(result, named(&result.call_id), sent()));
        let results = keep_last_results(results.collect());
        let mut parts = Vec::new();
        if !answers.is_empty() {
            parts.push(WORK_SINCE_CHECKPOINT.into());
            parts.extend(answers);
        }
        if !results.is_empty() {
            parts.push(wrap_results(&results));
        }
        let additional = additional
            .into_iter()
            .filter_map(|message| flatten_with(message, sent()));
        let additional = additional.filter(|message| message.role == Role::User);
        parts.extend(additional.map(|message| message.text));
        ResumePrompt {
            text: parts.join("\n\n"),
            images,
            lookalike: results
                .iter()
                .any(|result| imitates_recovered_result(&result.content)),
            results: results.len(),
            unshown: String::new(),
        }
    }
}

fn is_result(message: &Message) -> bool {
    message.result_id().is_some()
}

/// Returns a tool result as data in a user message, with Cursor's id of the call if it has one.
pub(super) fn recovered_result(
    result: &ToolResult,
    call: Option<&PendingCall>,
    images: ImageHandling,
) -> RecoveredResult {
    let id = &result.call_id;
    RecoveredResult {
        call: call.and_then(cursor_call_id).unwrap_or_else(|| id.clone()),
        tool: call.map(|call| call.tool.clone()),
        content: flat_message::text(&result.content, images),
        is_error: result.is_error,
    }
}

/// Returns Cursor's own id of a call, on one line. It may contain line breaks, which could be
/// mistaken for lines of the block that contains it.
fn cursor_call_id(call: &PendingCall) -> Option<String> {
    let id = call.cursor.as_deref()?;
    Some(id.lines().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{AnswerPart, Content, MessageKind, ToolCall};

    const PNG: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

    fn user(text: &str) -> Message {
        Message::user(text)
    }

    fn asks(text: &str, ids: &[&str]) -> Message {
        let mut parts = vec![AnswerPart::Text(text.into())];
        parts.extend(ids.iter().map(|id| {
            AnswerPart::Call(ToolCall {
                id: (*id).into(),
                name: "look".into(),
                arguments: serde_json::json!({}),
            })
        }));
        Message::answer(parts)
    }

    fn result(id: &str, text: &str) -> Message {
        Message::tool_result(id, "look", text)
    }

    /// Two turns; the second one has two rounds of tool calls.
    fn rounds() -> Vec<Message> {
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
    fn a_pause_and_its_restart_are_at_the_same_place() {
        let messages = rounds();
        let lost = LostTurn::read(&messages).unwrap();
        assert_eq!((lost.turn_start.start, lost.turn_start.turns), (2, 1));
        // The pause of each round was recorded with the history known at that time.
        for known in [3, 5] {
            assert_eq!(TurnStart::of(&messages[..known]), lost.turn_start);
        }
        let request = lost.request(None, LossKind::Gone);
        assert_eq!(request.in_flight, Some(vec!["t1", "t2"]));
        assert_eq!(request.received, ["t1", "t2"]);
        assert_ne!(
            TurnStart::of(&messages[..1]).history,
            lost.turn_start.history
        );
    }

    /// The hash was computed by the version that stored it in this form.
    #[test]
    fn a_pause_of_an_earlier_sidecar_is_recognized() {
        let messages = rounds();
        let pause = |history: &str| PausedTurn {
            calls: Vec::new(),
            earlier: Vec::new(),
            turns: 1,
            history: history.into(),
            recorded_at: 0,
            session: None,
        };
        let place = LostTurn::read(&messages).unwrap().turn_start;
        let mut known = pause("e5f69d41fd267a6a");
        update_pause(&mut known, &messages);
        assert_eq!(known.history, place.history);
        for other in ["0123456789abcdef", "", &place.history] {
            let mut kept = pause(other);
            update_pause(&mut kept, &messages);
            assert_eq!(kept, pause(other));
        }
    }

    #[test]
    fn only_results_after_the_last_answer_restart_a_turn() {
        let messages = rounds();
        assert!(LostTurn::read(&messages[..6]).is_none(), "not answered");
        assert!(LostTurn::read(&messages[..3]).is_none(), "not paused_calls");
        assert!(LostTurn::read(&[]).is_none());
        let answered = [rounds(), vec![asks("done", &[])]].concat();
        assert!(LostTurn::read(&answered).is_none());
    }

    #[test]
    fn text_between_calls_is_kept_and_results_are_sent_separately() {
        let messages = rounds();
        let lost = LostTurn::read(&messages).unwrap();
        let history = lost.history();
        let answers: Vec<bool> = history.iter().map(Message::is_answer).collect();
        assert_eq!(answers, [false, true, false, true, true]);
        assert_eq!(history[4], asks("second", &["t2"]));
        let prompt = lost.full_prompt();
        assert_eq!((prompt.results, prompt.lookalike), (2, false));
        assert!(prompt.text.contains("\none\n") && prompt.text.contains("\ntwo\n"));
    }

    #[test]
    fn a_checkpoint_is_sent_what_it_does_not_include() {
        let mut messages = rounds();
        messages.push(user("and hurry"));
        let lost = LostTurn::read(&messages).unwrap();
        // A checkpoint from before the first call lacks both rounds.
        let prompt = lost.prompt_since(3, None, &[]);
        assert_eq!(prompt.results, 2);
        assert!(prompt.text.contains("second\nTool call (look, call t2)"));
        assert!(
            !prompt.text.contains("first"),
            "its own answer: {}",
            prompt.text
        );
        assert!(prompt.text.ends_with("]\n\nand hurry"));
        // A checkpoint from the second round lacks only its result.
        let prompt = lost.prompt_since(5, None, &[]);
        assert_eq!(prompt.results, 1);
        assert!(
            prompt.text.starts_with("[Recovered tool output"),
            "{}",
            prompt.text
        );
        // The checkpoint lacks the end of its own answer, or the host does.
        let prompt = lost.prompt_since(3, Some("fir"), &[]);
        assert!(
            prompt.text.contains("turn:]\n\nst\n\nsecond"),
            "{}",
            prompt.text
        );
        let prompt = lost.prompt_since(3, Some("first of all"), &[]);
        assert!(
            prompt
                .text
                .contains("starting here:]\n\nof all\n\n[You did this"),
            "{}",
            prompt.text
        );
        assert_eq!(prompt.unshown, "", "the user sent a message");
        let silent = &messages[..7];
        let prompt = LostTurn::read(silent)
            .unwrap()
            .prompt_since(5, Some("second, well"), &[]);
        assert_eq!(prompt.unshown, ", well");
        // A checkpoint from after the results lacks only the user's message, or nothing.
        assert_eq!(lost.prompt_since(7, None, &[]).text, "and hurry");
        assert_eq!(lost.prompt_since(8, None, &[]).text, "");
    }

    #[test]
    fn results_are_sent_with_the_ids_the_model_knows() {
        let messages = rounds();
        let lost = LostTurn::read(&messages).unwrap();
        let paused = |id: &str, cursor: &str| PendingCall {
            id: id.into(),
            tool: "look".into(),
            cursor: Some(cursor.into()),
        };
        let paused_calls = [paused("t1", "call_1\nfc_1"), paused("t2", "call_2")];
        // From before the first call: Cursor's id for the first call, the host's id for the
        // second.
        let text = lost.prompt_since(3, None, &paused_calls).text;
        assert!(
            text.contains("Tool call id: call_1 fc_1\nTool name: look\nResult:\none\n"),
            "{text}"
        );
        assert!(text.contains("(look, call t2)"), "{text}");
        assert!(text.contains("Tool call id: t2\nResult:\ntwo\n"), "{text}");
        let text = lost.prompt_since(5, None, &paused_calls).text;
        assert!(
            text.contains("Tool call id: call_2\nTool name: look\n"),
            "{text}"
        );
        // A rebuilt history contains the host's ids only.
        assert!(!lost.full_prompt().text.contains("call_"));
    }

    #[test]
    fn images_of_results_and_messages_are_sent() {
        let with_image = |text: &str, data: &str| {
            let image = Content::Image {
                data: data.into(),
                mime_type: "image/png".into(),
            };
            vec![Content::Text(text.into()), image]
        };
        let mut messages = rounds();
        messages[2] = Message::new(MessageKind::User(with_image("go", PNG)));
        messages[6] = Message::new(MessageKind::ToolResult(ToolResult {
            content: with_image("see", PNG),
            is_error: true,
            ..messages[6].as_tool_result().unwrap().clone()
        }));
        messages.push(Message::new(MessageKind::User(with_image("this", "QUJD"))));
        let lost = LostTurn::read(&messages).unwrap();
        assert!(lost.has_images());
        let prompt = lost.prompt_since(5, None, &[]);
        assert_eq!(prompt.images.len(), 1);
        assert!(
            prompt
                .text
                .contains("Error: true\nResult:\nsee\n[image attached]\n")
        );
        assert!(
            prompt
                .text
                .ends_with("this\n[image omitted from transcript]")
        );
        assert_eq!(
            lost.full_prompt().images.len(),
            2,
            "including the image of the first message"
        );
    }
}
