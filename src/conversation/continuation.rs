//! What a host brings back to a run that waits for it.

use serde_json::Value as Json;

use super::message::{Speaker, read};

/// What the host says to a waiting run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Continuation<'a> {
    /// Results of waiting calls, newest of each id.
    pub results: Vec<(&'a str, &'a Json)>,
    /// What the person says besides.
    pub words: String,
}

/// Reads what a host brings for the calls that wait. Results are found by id wherever they
/// stand; words are those after the model's last.
pub fn continuation<'a>(messages: &'a [Json], waits: impl Fn(&str) -> bool) -> Continuation<'a> {
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
    let last = messages
        .iter()
        .rposition(|message| message["role"] == "assistant");
    let words: Vec<String> = messages[last.map_or(0, |at| at + 1)..]
        .iter()
        .filter(|message| message["role"] != "toolResult")
        .filter_map(read)
        .filter(|spoken| spoken.speaker == Speaker::User)
        .map(|spoken| spoken.text)
        .collect();
    Continuation {
        results,
        words: words.join("\n\n"),
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
