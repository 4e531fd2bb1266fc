//! The dialog of the tool that asks the user a question: the next step and the final result.
//!
//! A pure function of the call's arguments and the answers so far. The host that shows the
//! questions keeps the answers, so calls share no state.

use serde_json::{Value as Json, json};

use crate::prompts::tools;
use foundation::terminal_text::{clean, cleaned};

/// The tool's display name.
pub const LABEL: &str = "Question";
pub use crate::prompts::tools::QUESTION_DESCRIPTION as DESCRIPTION;
/// The option that ends the selection of several options.
const SELECTION_DONE: &str = "Done";
/// The option to type a custom answer.
const CUSTOM_ANSWER: &str = "Type a custom answer";

/// The next step of the dialog.
#[derive(Debug, Clone, PartialEq)]
pub enum DialogStep {
    /// Let the user choose between options.
    Choose {
        /// The question.
        title: String,
        /// The options, as displayed.
        options: Vec<String>,
    },
    /// Let the user type an answer.
    Write {
        /// The question.
        title: String,
    },
    /// The dialog is complete.
    Done {
        /// The result for the model.
        text: String,
        /// The answers as structured data.
        details: Json,
    },
}

/// Why no question can be asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DialogError {
    /// The call contains no question.
    #[error("{}", tools::NO_QUESTION)]
    NothingAsked,
    /// The host has no UI to ask the user.
    #[error("{}", tools::UI_UNAVAILABLE)]
    NoUser,
}

/// JSON Schema of the tool's arguments.
pub fn parameters() -> Json {
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "items": {}});
    let one = json!({"question": text, "prompt": text, "options": list, "choices": list,
        "allowCustom": {"type": "boolean"}, "allowMultiple": {"type": "boolean"}});
    let mut item = one.clone();
    item["id"] = text;
    let mut properties = one;
    properties["questions"] =
        json!({"type": "array", "items": {"type": "object", "properties": item}});
    json!({"type": "object", "properties": properties})
}

/// One question and how it may be answered.
struct DialogQuestion {
    id: Option<String>,
    title: String,
    /// The text displayed for each choice, and its value.
    choices: Vec<(String, String)>,
    allow_custom: bool,
    allow_multiple: bool,
}

/// One selected option or typed text.
struct Selection {
    /// As displayed.
    label: String,
    value: String,
}

/// The answer to one question.
struct GivenAnswer {
    id: String,
    selected: Vec<Selection>,
}

impl GivenAnswer {
    fn label(&self) -> String {
        let labels = self.selected.iter().map(|one| one.label.as_str());
        labels.collect::<Vec<_>>().join(", ")
    }
}

impl DialogQuestion {
    fn read(json: &Json) -> Option<Self> {
        let title = json["question"].as_str().or(json["prompt"].as_str())?;
        let options = json["options"].as_array().or(json["choices"].as_array());
        Some(Self {
            id: json["id"].as_str().map(str::to_owned),
            title: clean(title).into_owned(),
            choices: options.into_iter().flatten().map(choice).collect(),
            allow_custom: json["allowCustom"] != false,
            allow_multiple: json["allowMultiple"] == true,
        })
    }
}

/// An option is a text, or an object with a label, a value, or both. What is displayed has no
/// control characters, because the answer is compared with it.
fn choice(option: &Json) -> (String, String) {
    let as_text = |json: &Json| match json {
        Json::Null => None,
        Json::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    if !option.is_object() {
        let text = as_text(option).unwrap_or_default();
        return (clean(&text).into_owned(), text);
    }
    let (label, value) = (as_text(&option["label"]), as_text(&option["value"]));
    let shown = label.clone().or(value.clone()).unwrap_or_default();
    let value = value.or(label).unwrap_or_default();
    match as_text(&option["description"]) {
        Some(more) => (cleaned(format!("{shown}: {more}")), value),
        None => (cleaned(shown), value),
    }
}

/// Returns the step that follows these answers; a `None` among them means that the user
/// cancelled.
pub fn next(arguments: &Json, answers: &[Option<String>]) -> Result<DialogStep, DialogError> {
    let several = arguments["questions"]
        .as_array()
        .filter(|list| !list.is_empty());
    let asked = several.map_or(std::slice::from_ref(arguments), Vec::as_slice);
    let asked: Option<Vec<DialogQuestion>> = asked.iter().map(DialogQuestion::read).collect();
    let asked = asked.ok_or(DialogError::NothingAsked)?;
    let mut answers = answers.iter();
    let mut given: Vec<GivenAnswer> = Vec::new();
    for question in &asked {
        let selected = match selection(question, &mut answers) {
            DialogProgress::Selected(selected) => selected,
            DialogProgress::Ask(step) => return Ok(step),
            DialogProgress::Cancelled => return Ok(cancelled(&given)),
        };
        let id = question.id.clone();
        let id = id.unwrap_or_else(|| (given.len() + 1).to_string());
        given.push(GivenAnswer { id, selected });
    }
    let lines = given.iter().map(|answer| match asked.len() {
        1 => answer.label(),
        _ => format!("\n- {}: {}", answer.id, answer.label()),
    });
    Ok(DialogStep::Done {
        text: tools::user_answered(lines.collect::<String>()),
        details: details(&given),
    })
}

/// How far one question is answered.
enum DialogProgress {
    Selected(Vec<Selection>),
    Ask(DialogStep),
    Cancelled,
}

/// Reads the answers to a question. A question with several answers is asked until the user is
/// done; what is selected is not offered again.
fn selection<'a>(
    question: &DialogQuestion,
    answers: &mut impl Iterator<Item = &'a Option<String>>,
) -> DialogProgress {
    let title = || question.title.clone();
    let mut selected: Vec<Selection> = Vec::new();
    while !question.choices.is_empty() {
        let is_open = |shown: &str| selected.iter().all(|one| one.label != shown);
        let choices = question.choices.iter().map(|(shown, _)| shown.clone());
        let mut options: Vec<String> = choices.filter(|shown| is_open(shown)).collect();
        if selected.is_empty() {
            if question.allow_custom {
                options.push(CUSTOM_ANSWER.into());
            }
        } else if options.is_empty() {
            return DialogProgress::Selected(selected);
        } else {
            options.push(SELECTION_DONE.into());
        }
        let Some(answer) = answers.next() else {
            let title = match selected.len() {
                0 => title(),
                count => format!("{} ({count} selected)", question.title),
            };
            return DialogProgress::Ask(DialogStep::Choose { title, options });
        };
        let Some(answer) = answer.as_ref().filter(|answer| options.contains(answer)) else {
            return DialogProgress::Cancelled;
        };
        let Some((label, value)) = question.choices.iter().find(|(shown, _)| shown == answer)
        else {
            if selected.is_empty() {
                break; // a custom answer
            }
            return DialogProgress::Selected(selected);
        };
        selected.push(Selection {
            label: label.clone(),
            value: value.clone(),
        });
        if !question.allow_multiple {
            return DialogProgress::Selected(selected);
        }
    }
    match answers.next() {
        None => DialogProgress::Ask(DialogStep::Write { title: title() }),
        Some(None) => DialogProgress::Cancelled,
        Some(Some(text)) => DialogProgress::Selected(vec![Selection {
            label: text.clone(),
            value: text.clone(),
        }]),
    }
}

fn cancelled(given: &[GivenAnswer]) -> DialogStep {
    DialogStep::Done {
        text: tools::QUESTION_CANCELLED.into(),
        details: details(given),
    }
}

fn details(given: &[GivenAnswer]) -> Json {
    let answers: Vec<Json> = given
        .iter()
        .map(|answer| {
            let values: Vec<&str> = answer
                .selected
                .iter()
                .map(|one| one.value.as_str())
                .collect();
            json!({"id": answer.id, "answer": answer.label(), "values": values})
        })
        .collect();
    json!({"answers": answers})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(arguments: &Json, answers: &[&str]) -> DialogStep {
        let answers: Vec<_> = answers.iter().map(|text| Some((*text).into())).collect();
        next(arguments, &answers).unwrap()
    }

    fn answered(id: &str, shown: &[(&str, &str)]) -> GivenAnswer {
        let selected = shown.iter().map(|(label, value)| Selection {
            label: (*label).into(),
            value: (*value).into(),
        });
        GivenAnswer {
            id: id.into(),
            selected: selected.collect(),
        }
    }

    fn done(text: &str, answers: &[(&str, &str)]) -> DialogStep {
        let given = answers
            .iter()
            .map(|(id, text)| answered(id, &[(*text, *text)]));
        DialogStep::Done {
            text: text.into(),
            details: details(&given.collect::<Vec<_>>()),
        }
    }

    fn chose(text: &str, shown: &[(&str, &str)]) -> DialogStep {
        DialogStep::Done {
            text: text.into(),
            details: details(&[answered("1", shown)]),
        }
    }

    #[test]
    fn several_options_can_be_selected() {
        let toppings = json!({"question": "Which?", "allowMultiple": true,
            "options": [{"label": "Cheese", "value": "c"}, {"label": "Ham", "value": "h"}]});
        let DialogStep::Choose { title, options } = after(&toppings, &["Ham"]) else {
            panic!("no second choice");
        };
        assert_eq!(title, "Which? (1 selected)");
        assert_eq!(options, ["Cheese", SELECTION_DONE]);
        let one = after(&toppings, &["Ham", SELECTION_DONE]);
        assert_eq!(one, chose("User answered: Ham", &[("Ham", "h")]));
        let both = after(&toppings, &["Ham", "Cheese"]);
        let shown = [("Ham", "h"), ("Cheese", "c")];
        assert_eq!(both, chose("User answered: Ham, Cheese", &shown));
    }

    #[test]
    fn one_question_takes_a_choice_or_a_custom_answer() {
        let fruit = json!({"question": "Which?", "options": ["Apples",
            {"label": "Pears", "value": "p", "description": "green"}, {"value": 7}]});
        let options = ["Apples", "Pears: green", "7", CUSTOM_ANSWER].map(str::to_owned);
        let title = String::from("Which?");
        let choose = DialogStep::Choose {
            title: title.clone(),
            options: options.into(),
        };
        assert_eq!(after(&fruit, &[]), choose);
        assert_eq!(
            after(&fruit, &["Pears: green"]),
            chose("User answered: Pears: green", &[("Pears: green", "p")])
        );
        assert_eq!(after(&fruit, &[CUSTOM_ANSWER]), DialogStep::Write { title });
        let own = after(&fruit, &[CUSTOM_ANSWER, "Plums"]);
        assert_eq!(own, done("User answered: Plums", &[("1", "Plums")]));
        let closed = json!({"prompt": "Sure?", "choices": ["Yes"], "allowCustom": false});
        let DialogStep::Choose { options, .. } = after(&closed, &[]) else {
            panic!("nothing to choose from");
        };
        assert_eq!(options, ["Yes"]);
    }

    #[test]
    fn an_option_with_control_characters_can_be_chosen() {
        let hostile = json!({"question": "Which\u{7}?", "options": ["A\u{1b}[2J",
            {"label": "B\u{9b}", "value": "b"}]});
        let options = ["A␛[2J", "B\u{fffd}", CUSTOM_ANSWER].map(str::to_owned);
        let choose = DialogStep::Choose {
            title: "Which␇?".into(),
            options: options.into(),
        };
        assert_eq!(after(&hostile, &[]), choose);
        let chosen = after(&hostile, &["B\u{fffd}"]);
        let shown = "B\u{fffd}";
        assert_eq!(
            chosen,
            chose(&format!("User answered: {shown}"), &[(shown, "b")])
        );
        let chosen = after(&hostile, &["A␛[2J"]);
        let shown = "A␛[2J";
        assert_eq!(
            chosen,
            chose(&format!("User answered: {shown}"), &[(shown, "A\u{1b}[2J")])
        );
    }

    #[test]
    fn questions_are_asked_in_turn_until_one_is_cancelled() {
        let both = json!({"questions": [{"id": "a", "prompt": "A?"}, {"prompt": "B?"}]});
        assert_eq!(
            after(&both, &["x"]),
            DialogStep::Write { title: "B?".into() }
        );
        let whole = done("User answered: \n- a: x\n- 2: y", &[("a", "x"), ("2", "y")]);
        assert_eq!(after(&both, &["x", "y"]), whole);
        let cancelled = next(&both, &[Some("x".into()), None]).unwrap();
        assert_eq!(cancelled, done(tools::QUESTION_CANCELLED, &[("a", "x")]));
        assert_eq!(
            next(&json!({"questions": [{}]}), &[]),
            Err(DialogError::NothingAsked)
        );
    }
}
