//! The model's questions to the user, asked through a tool of the host.

use serde_json::{Value as Json, json};

use super::HostResult;
use super::content::Content;
use cursor_proto::agent::v1::{
    AskQuestionArgs, AskQuestionRejected, AskQuestionResult, AskQuestionSuccess, ask_question_args,
    ask_question_result, ask_question_success,
};

/// The host's tool that asks the user.
pub const TOOL: &str = "cursor_ask_question";

/// Returns the arguments of that tool for Cursor's question.
pub fn arguments(args: &AskQuestionArgs) -> Json {
    let option =
        |option: &ask_question_args::Option| json!({"label": option.label, "value": option.id});
    let question = |question: &ask_question_args::Question| {
        json!({
            "id": question.id,
            "question": question.prompt,
            "options": question.options.iter().map(option).collect::<Vec<_>>(),
            "allowMultiple": question.allow_multiple,
        })
    };
    let questions: Vec<Json> = args.questions.iter().map(question).collect();
    json!({"title": args.title, "questions": questions})
}

/// Returns the user's answers in Cursor's format. The host's details list them by question;
/// without details the text answers the first question.
pub fn result(args: &AskQuestionArgs, result: HostResult) -> AskQuestionResult {
    let text = result.text();
    let answers: Vec<ask_question_success::Answer> = match &result.details["answers"] {
        Json::Array(answers) => answers
            .iter()
            .filter_map(|given| answer(args, given))
            .collect(),
        _ => args
            .questions
            .first()
            .map(|question| ask_question_success::Answer {
                question_id: question.id.clone(),
                selected_option_ids: Vec::new(),
                freeform_text: text.clone(),
            })
            .into_iter()
            .collect(),
    };
    let answered = !result.is_error && !answers.is_empty();
    AskQuestionResult {
        result: Some(if answered {
            ask_question_result::Result::Success(AskQuestionSuccess { answers })
        } else {
            ask_question_result::Result::Rejected(AskQuestionRejected { reason: text })
        }),
    }
}

/// Matches an answer to an option of the question; any other text is a free-form answer.
fn answer(args: &AskQuestionArgs, given: &Json) -> Option<ask_question_success::Answer> {
    let id = given["id"].as_str()?;
    let question = args.questions.iter().find(|question| question.id == id)?;
    let text = given["answer"].as_str().unwrap_or_default();
    let values: Vec<&str> = match &given["values"] {
        Json::Array(values) => values.iter().filter_map(Json::as_str).collect(),
        _ => vec![text],
    };
    let chosen = |value: &str| {
        let mut options = question.options.iter();
        options.find(|option| option.id == value || option.label == value)
    };
    let selected: Vec<String> = values
        .iter()
        .filter_map(|value| chosen(value).map(|option| option.id.clone()))
        .collect();
    Some(ask_question_success::Answer {
        question_id: question.id.clone(),
        freeform_text: if selected.is_empty() {
            text.to_owned()
        } else {
            String::new()
        },
        selected_option_ids: selected,
    })
}

impl HostResult {
    /// Returns the text blocks of a result, one per line.
    fn text(&self) -> String {
        let texts: Vec<&str> = self
            .content
            .iter()
            .filter_map(|content| match content {
                Content::Text(text) => Some(text.as_str()),
                Content::Image { .. } => None,
            })
            .collect();
        texts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> AskQuestionArgs {
        let option = |id: &str, label: &str| ask_question_args::Option {
            id: id.into(),
            label: label.into(),
        };
        let question = |id: &str| ask_question_args::Question {
            id: id.into(),
            prompt: format!("{id}?"),
            options: vec![option("y", "Yes"), option("n", "No")],
            allow_multiple: false,
        };
        AskQuestionArgs {
            questions: vec![question("one"), question("two")],
            ..AskQuestionArgs::default()
        }
    }

    fn text_result(text: &str, details: Json, is_error: bool) -> HostResult {
        HostResult {
            content: vec![Content::Text(text.into())],
            is_error,
            details,
            structured: None,
        }
    }

    fn answers(result: AskQuestionResult) -> Vec<(String, Vec<String>, String)> {
        match result.result {
            Some(ask_question_result::Result::Success(success)) => success
                .answers
                .into_iter()
                .map(|answer| {
                    (
                        answer.question_id,
                        answer.selected_option_ids,
                        answer.freeform_text,
                    )
                })
                .collect(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn questions_are_converted_to_the_hosts_format() {
        let shown = arguments(&asked());
        assert_eq!(shown["questions"][1]["question"], "two?");
        assert_eq!(
            shown["questions"][0]["options"][1],
            json!({"label": "No", "value": "n"})
        );
    }

    #[test]
    fn options_become_ids_and_free_text_is_kept() {
        let details = json!({"answers": [{"id": "one", "answer": "Yes"}, {"id": "two", "answer": "perhaps"}, {"id": "?", "answer": "x"}]});
        let found = answers(result(&asked(), text_result("", details, false)));
        assert_eq!(
            found,
            [
                ("one".into(), vec!["y".into()], String::new()),
                ("two".into(), vec![], "perhaps".into()),
            ]
        );
        let found = answers(result(&asked(), text_result("both", Json::Null, false)));
        assert_eq!(found, [("one".into(), vec![], "both".into())]);
    }

    #[test]
    fn a_failed_question_is_rejected_with_the_reason() {
        let result = result(&asked(), text_result("no UI here", Json::Null, true));
        let Some(ask_question_result::Result::Rejected(rejected)) = result.result else {
            panic!("not rejected");
        };
        assert_eq!(rejected.reason, "no UI here");
    }
}
