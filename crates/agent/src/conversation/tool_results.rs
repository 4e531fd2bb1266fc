//! What a host sends to a run that waits for tool results.

use super::flat_message::{ImageHandling, Role, flatten_with};
use super::image::{self, DecodedImage};
use crate::message::{Answer, AnswerPart, Message, ToolResult};

/// The host's input for a waiting run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct HostInput<'a> {
    /// Results of the pending calls, the newest for each id.
    pub results: Vec<&'a ToolResult>,
    /// Text of the user's additional messages.
    pub text: String,
    /// The images of these messages. An image that cannot be sent is replaced by a note, because
    /// the run waits for the results and the text must not be lost because of an image.
    pub images: Vec<DecodedImage>,
}

/// Returns the results for pending calls, found by id anywhere in the history; the newest for
/// each.
pub fn pending_results(
    messages: &[Message],
    is_pending: impl Fn(&str) -> bool,
) -> Vec<&ToolResult> {
    let mut results: Vec<&ToolResult> = Vec::new();
    // An old result is found by its id, without its content.
    let received = messages
        .iter()
        .filter(|message| message.result_id().is_some_and(&is_pending));
    for result in received.filter_map(Message::as_tool_result) {
        let known = results
            .iter_mut()
            .find(|known| known.call_id == result.call_id);
        match known {
            Some(known) => *known = result,
            None => results.push(result),
        }
    }
    results
}

/// Reads the results for pending calls, and the user's messages after the model's last answer. An
/// empty answer is that of a turn which failed before it reached the run, so the messages before it
/// are read too.
pub fn host_input<'a>(messages: &'a [Message], is_pending: impl Fn(&str) -> bool) -> HostInput<'a> {
    let last = messages
        .iter()
        .rposition(|message| message.as_answer().is_some_and(|answer| !is_empty(answer)));
    let since_answer: Vec<&Message> = messages[last.map_or(0, |at| at + 1)..]
        .iter()
        .filter(|message| message.as_tool_result().is_none())
        .collect();
    let (images, sent): (_, Vec<ImageHandling>) =
        image::decode_fitting(since_answer.iter().copied());
    let texts: Vec<String> = since_answer
        .into_iter()
        .zip(sent)
        .filter_map(|(message, images)| flatten_with(message, images))
        .filter(|message| message.role == Role::User)
        .map(|message| message.text)
        .collect();
    HostInput {
        results: pending_results(messages, is_pending),
        text: texts.join("\n\n"),
        images,
    }
}

/// Returns whether an answer has neither text nor calls.
fn is_empty(answer: &Answer) -> bool {
    answer.parts.iter().all(|part| match part {
        AnswerPart::Text(text) => text.trim().is_empty(),
        AnswerPart::Call(_) => false,
        AnswerPart::Thinking(_) | AnswerPart::Image => true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::{Content, MessageKind, ToolCall};
    use serde_json::Value as Json;

    fn call() -> AnswerPart {
        AnswerPart::Call(ToolCall {
            id: "a".into(),
            name: "t".into(),
            arguments: Json::Null,
        })
    }

    fn result(id: &str, text: &str) -> Message {
        Message::tool_result(id, "t", text)
    }

    #[test]
    fn results_are_found_by_id_in_any_order_with_the_messages_after_them() {
        let messages = [
            Message::user("go"),
            Message::answer(vec![call()]),
            result("b", "2"),
            result("other", "-"),
            result("a", "1"),
            Message::user("hurry"),
            Message::user("please"),
        ];
        let found = host_input(&messages, |id| id == "a" || id == "b");
        let ids: Vec<&str> = found.results.iter().map(|r| r.call_id.as_str()).collect();
        assert_eq!(
            (ids, found.text.as_str()),
            (vec!["b", "a"], "hurry\n\nplease")
        );
    }

    #[test]
    fn images_are_sent_with_their_messages_if_possible() {
        let message = |text: &str, data: &str| {
            let image = Content::Image {
                data: data.into(),
                mime_type: "image/png".into(),
            };
            Message::new(MessageKind::User(vec![Content::Text(text.into()), image]))
        };
        let messages = [
            message("before", "iVBORw0KGgoAAAANSUhEUg=="),
            Message::answer(vec![call()]),
            result("a", "1"),
            message("like this", "iVBORw0KGgoAAAANSUhEUg=="),
            message("or that", "!!"),
        ];
        let found = host_input(&messages, |_| true);
        assert_eq!(found.images.len(), 1);
        assert_eq!(found.images[0].mime_type, "image/png");
        assert_eq!(
            found.text,
            "like this\n[image attached]\n\nor that\n[image omitted from transcript]"
        );
    }

    #[test]
    fn an_empty_answer_hides_no_message() {
        let messages = |text: &str| {
            [
                Message::user("go"),
                Message::answer(vec![call()]),
                result("a", "1"),
                Message::user("one"),
                Message::assistant(text),
                Message::user("two"),
            ]
        };
        assert_eq!(host_input(&messages(" "), |_| true).text, "one\n\ntwo");
        assert_eq!(host_input(&messages("Hm."), |_| true).text, "two");
    }

    #[test]
    fn the_newest_result_of_a_call_counts() {
        let messages = [
            Message::answer(Vec::new()),
            result("a", "old"),
            result("a", "new"),
        ];
        let found = host_input(&messages, |_| true);
        assert_eq!(found.results.len(), 1);
        assert_eq!(found.results[0].content, [Content::Text("new".into())]);
        assert_eq!(found.text, "");
    }
}
