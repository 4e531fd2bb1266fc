//! Questions of the model to the person, put through a tool of the host.

use serde_json::{Value as Json, json};

use super::content::Content;
use super::{HostResult, Verdict};
use crate::wire::proto::agent::v1::{
    AskQuestionArgs, AskQuestionRejected, AskQuestionResult, AskQuestionSuccess, ask_question_args,
    ask_question_result, ask_question_success,
};

/// The host's tool that asks a person.
pub const TOOL: &str = "cursor_ask_question";

/// The arguments of that tool for a question of Cursor's own kind.
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

/// What the person said, in Cursor's words. The host's details tell it question by
/// question; without them the text is the answer to the first one.
pub fn result(args: &AskQuestionArgs, result: HostResult) -> AskQuestionResult {
    let said = result.text();
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
                freeform_text: said.clone(),
            })
            .into_iter()
            .collect(),
    };
    let answered = result.verdict == Verdict::Done && !answers.is_empty();
    AskQuestionResult {
        result: Some(match answered {
            true => ask_question_result::Result::Success(AskQuestionSuccess { answers }),
            false => ask_question_result::Result::Rejected(AskQuestionRejected { reason: said }),
        }),
    }
}

/// An answer names an option or is the person's own words.
fn answer(args: &AskQuestionArgs, given: &Json) -> Option<ask_question_success::Answer> {
    let id = given["id"].as_str()?;
    let question = args.questions.iter().find(|question| question.id == id)?;
    let text = given["answer"].as_str().unwrap_or_default();
    let chosen = question
        .options
        .iter()
        .find(|option| option.id == text || option.label == text);
    Some(ask_question_success::Answer {
        question_id: question.id.clone(),
        selected_option_ids: chosen.map(|option| option.id.clone()).into_iter().collect(),
        freeform_text: match chosen {
            Some(_) => String::new(),
            None => text.to_owned(),
        },
    })
}

impl HostResult {
    /// The words of a result.
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

    fn said(text: &str, details: Json, verdict: Verdict) -> HostResult {
        HostResult {
            content: vec![Content::Text(text.into())],
            verdict,
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
    fn a_host_sees_questions_in_its_own_shape() {
        let shown = arguments(&asked());
        assert_eq!(shown["questions"][1]["question"], "two?");
        assert_eq!(
            shown["questions"][0]["options"][1],
            json!({"label": "No", "value": "n"})
        );
    }

    #[test]
    fn options_are_named_and_words_are_kept() {
        let details = json!({"answers": [{"id": "one", "answer": "Yes"}, {"id": "two", "answer": "perhaps"}, {"id": "?", "answer": "x"}]});
        let found = answers(result(&asked(), said("", details, Verdict::Done)));
        assert_eq!(
            found,
            [
                ("one".into(), vec!["y".into()], String::new()),
                ("two".into(), vec![], "perhaps".into()),
            ]
        );
        let found = answers(result(&asked(), said("both", Json::Null, Verdict::Done)));
        assert_eq!(found, [("one".into(), vec![], "both".into())]);
    }

    #[test]
    fn nobody_there_is_a_refusal_with_the_reason() {
        let result = result(&asked(), said("no UI here", Json::Null, Verdict::Failed));
        let Some(ask_question_result::Result::Rejected(rejected)) = result.result else {
            panic!("not rejected");
        };
        assert_eq!(rejected.reason, "no UI here");
    }
}
