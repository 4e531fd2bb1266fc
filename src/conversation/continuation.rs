//! What a host brings back to a run that waits for it.

use serde_json::Value as Json;

use super::message::{Pictures, Speaker, read_with};
use super::picture::{self, Picture};

/// What the host says to a waiting run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Continuation<'a> {
    /// Results of waiting calls, newest of each id.
    pub results: Vec<(&'a str, &'a Json)>,
    /// What the person says besides.
    pub words: String,
    /// The pictures with these words. One that cannot be sent is told as missing: the run
    /// waits for the results, and words are not lost for a picture.
    pub pictures: Vec<Picture>,
}

/// Results a host brings for the calls that wait, found by id wherever they stand; the newest
/// of each.
pub fn results(messages: &[Json], waits: impl Fn(&str) -> bool) -> Vec<(&str, &Json)> {
    let mut results: Vec<(&str, &Json)> = Vec::new();
    for message in messages {
        if message["role"] != "toolResult" {
            continue;
        }
        let Some(id) = message["toolCallId"].as_str().filter(|id| waits(id)) else {
            continue;
        };
        match results.iter_mut().find(|(known, _)| *known == id) {
            Some(result) => result.1 = message,
            None => results.push((id, message)),
        }
    }
    results
}

/// Reads what a host brings for the calls that wait: results, and the words after the model's
/// last.
pub fn continuation<'a>(messages: &'a [Json], waits: impl Fn(&str) -> bool) -> Continuation<'a> {
    let last = messages
        .iter()
        .rposition(|message| message["role"] == "assistant");
    let said: Vec<&Json> = messages[last.map_or(0, |at| at + 1)..]
        .iter()
        .filter(|message| message["role"] != "toolResult")
        .collect();
    let (pictures, sent): (_, Vec<Pictures>) = picture::that_fit(said.iter().copied());
    let words: Vec<String> = said
        .into_iter()
        .zip(sent)
        .filter_map(|(message, pictures)| read_with(message, pictures))
        .filter(|spoken| spoken.speaker == Speaker::User)
        .map(|spoken| spoken.text)
        .collect();
    Continuation {
        results: results(messages, waits),
        words: words.join("\n\n"),
        pictures,
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
    fn results_by_id_in_any_order_and_words_after_them() {
        let messages = [
            json!({"role": "user", "content": "go"}),
            json!({"role": "assistant", "content": []}),
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
    fn pictures_go_with_the_words_unless_they_cannot() {
        let picture = |data: &str| json!({"type": "image", "data": data, "mimeType": "image/png"});
        let said = |text: &str, data: &str| json!({"role": "user", "content": [{"type": "text", "text": text}, picture(data)]});
        let messages = [
            said("before", "iVBORw0KGgoAAAANSUhEUg=="),
            json!({"role": "assistant", "content": []}),
            result("a", "1"),
            said("like this", "iVBORw0KGgoAAAANSUhEUg=="),
            said("or that", "!!"),
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
    fn a_result_told_twice_counts_once() {
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
