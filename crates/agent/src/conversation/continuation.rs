//! What a host sends to a run that waits for tool results.

use serde_json::Value as Json;

use super::message::{Pictures, Speaker, read_with};
use super::picture::{self, Picture};

/// The host's input for a waiting run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Continuation<'a> {
    /// Results of the pending calls, the newest for each id.
    pub results: Vec<(&'a str, &'a Json)>,
    /// Text of the user's additional messages.
    pub words: String,
    /// The images of these messages. An image that cannot be sent is replaced by a note, because
    /// the run waits for the results and the text must not be lost because of an image.
    pub pictures: Vec<Picture>,
}

/// Returns the results for pending calls, found by id anywhere in the history; the newest for
/// each.
pub fn results(messages: &[Json], is_pending: impl Fn(&str) -> bool) -> Vec<(&str, &Json)> {
    let mut results: Vec<(&str, &Json)> = Vec::new();
    for message in messages {
        if message["role"] != "toolResult" {
            continue;
        }
        let Some(id) = message["toolCallId"].as_str().filter(|id| is_pending(id)) else {
            continue;
        };
        match results.iter_mut().find(|(known, _)| *known == id) {
            Some(result) => result.1 = message,
            None => results.push((id, message)),
        }
    }
    results
}

/// Reads the results for pending calls, and the user's messages after the model's last answer. An
/// empty answer is that of a turn which failed before it reached the run, so the messages before it
/// are read too.
pub fn continuation<'a>(
    messages: &'a [Json],
    is_pending: impl Fn(&str) -> bool,
) -> Continuation<'a> {
    let last = messages
        .iter()
        .rposition(|message| message["role"] == "assistant" && !is_empty_answer(message));
    let since_answer: Vec<&Json> = messages[last.map_or(0, |at| at + 1)..]
        .iter()
        .filter(|message| message["role"] != "toolResult")
        .collect();
    let (pictures, sent): (_, Vec<Pictures>) = picture::that_fit(since_answer.iter().copied());
    let texts: Vec<String> = since_answer
        .into_iter()
        .zip(sent)
        .filter_map(|(message, pictures)| read_with(message, pictures))
        .filter(|message| message.speaker == Speaker::User)
        .map(|message| message.text)
        .collect();
    Continuation {
        results: results(messages, is_pending),
        words: texts.join("\n\n"),
        pictures,
    }
}

/// Returns whether an answer has neither text nor calls.
fn is_empty_answer(message: &Json) -> bool {
    let is_empty = |block: &Json| match block["type"].as_str() {
        Some("text") => block["text"]
            .as_str()
            .is_none_or(|text| text.trim().is_empty()),
        kind => kind != Some("toolCall"),
    };
    match &message["content"] {
        Json::String(text) => text.trim().is_empty(),
        Json::Array(blocks) => blocks.iter().all(is_empty),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn result(id: &str, text: &str) -> Json {
        json!({"role": "toolResult", "toolCallId": id, "toolName": "t", "content": text})
    }

    #[test]
    fn results_are_found_by_id_in_any_order_with_the_messages_after_them() {
        let messages = [
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": [{"type": "toolCall", "id": "a"}]}),
            result("b", "2"),
            result("other", "-"),
            result("a", "1"),
            json!({"role": "user", "content": "hurry"}),
            json!({"role": "user", "content": "please"}),
        ];
        let found = continuation(&messages, |id| id == "a" || id == "b");
        let ids: Vec<&str> = found.results.iter().map(|(id, _)| *id).collect();
        assert_eq!(
            (ids, found.words.as_str()),
            (vec!["b", "a"], "hurry\n\nplease")
        );
    }

    #[test]
    fn images_are_sent_with_their_messages_if_possible() {
        let picture = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let message = |text: &str, data: &str| json!({"role": "user", "content": [{"type": "text", "text": text}, picture(data)]});
        let messages = [
            message("before", "iVBORw0KGgoAAAANSUhEUg=="),
            json!({"role": "assistant", "content": [{"type": "toolCall", "id": "a"}]}),
            result("a", "1"),
            message("like this", "iVBORw0KGgoAAAANSUhEUg=="),
            message("or that", "!!"),
        ];
        let found = continuation(&messages, |_| true);
        assert_eq!(found.pictures.len(), 1);
        assert_eq!(found.pictures[0].mime_type, "image/png");
        assert_eq!(
            found.words,
            "like this\n[image attached]\n\nor that\n[image omitted from transcript]"
        );
    }

    #[test]
    fn an_empty_answer_hides_no_message() {
        let call = json!({"type": "toolCall", "id": "a", "name": "t", "arguments": {}});
        let user = |text: &str| json!({"role": "user", "content": text});
        let answer =
            |text: &str| json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        let messages = |text: &str| {
            [
                user("go"),
                json!({"role": "assistant", "content": [call.clone()]}),
                result("a", "1"),
                user("one"),
                answer(text),
                user("two"),
            ]
        };
        assert_eq!(continuation(&messages(" "), |_| true).words, "one\n\ntwo");
        assert_eq!(continuation(&messages("Hm."), |_| true).words, "two");
    }

    #[test]
    fn the_newest_result_of_a_call_counts() {
        let messages = [
            json!({"role": "assistant"}),
            result("a", "old"),
            result("a", "new"),
        ];
        let found = continuation(&messages, |_| true);
        assert_eq!(found.results.len(), 1);
        assert_eq!(found.results[0].1["content"], "new");
        assert_eq!(found.words, "");
    }
}
