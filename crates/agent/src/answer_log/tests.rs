use super::*;

fn take_all(log: &mut TextLog, pieces: &[&str]) -> String {
    pieces.iter().map(|piece| log.take(piece)).collect()
}

#[test]
fn repeated_text_is_shown_once() {
    let mut log = AnswerLog::default();
    assert_eq!(take_all(&mut log.text, &["one ", "two "]), "one two ");
    log.checkpoint();
    assert_eq!(take_all(&mut log.text, &["three ", "four "]), "three four ");
    log.restart();
    let repetition = ["th", "ree fo", "ur five ", "six"];
    assert_eq!(take_all(&mut log.text, &repetition), "five six");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["three four five six!"]), "!");
}

#[test]
fn a_checkpoint_in_the_middle_keeps_what_is_still_to_be_repeated() {
    let mut log = AnswerLog::default();
    take_all(&mut log.text, &["one two three "]);
    log.restart();
    assert_eq!(take_all(&mut log.text, &["one "]), "");
    log.checkpoint();
    assert_eq!(take_all(&mut log.text, &["two three four"]), "four");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["two three four"]), "");
}

#[test]
fn different_text_is_shown_in_full_as_a_new_paragraph() {
    let mut log = AnswerLog::default();
    take_all(&mut log.text, &["so ä it is"]);
    log.restart();
    assert_eq!(take_all(&mut log.text, &["so "]), "");
    assert_eq!(take_all(&mut log.text, &["ö ", "was"]), "\n\nso ö was");
    assert_eq!(take_all(&mut log.thinking, &["hm"]), "hm");
    log.restart();
    // Either text may be repeated.
    assert_eq!(take_all(&mut log.text, &["so ", "ö was it"]), " it");
    log.checkpoint();
    assert_eq!(log.text.unacknowledged(), "");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["so"]), "so");
    let mut log = AnswerLog::after("a line\n".into());
    log.restart();
    assert_eq!(take_all(&mut log.text, &["", "another"]), "\nanother");
}

#[test]
fn a_repetition_that_is_interrupted_again_is_not_shown() {
    let mut log = AnswerLog::after("one two three ".into());
    log.restart();
    assert_eq!(take_all(&mut log.text, &["one two "]), "");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["one two three four"]), "four");
}

#[test]
fn an_event_between_repeated_texts_does_not_show_them_again() {
    let mut log = AnswerLog::after("Look. Found. ".into());
    log.restart();
    assert_eq!(take_all(&mut log.text, &["Look. "]), "");
    assert_eq!(log.text.release(), "");
    assert_eq!(take_all(&mut log.text, &["Found. Done. "]), "Done. ");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["Look. "]), "");
    assert_eq!(log.text.release(), "");
    assert_eq!(take_all(&mut log.text, &["Fo", "rgot."]), "\n\nForgot.");
}

#[test]
fn shown_text_is_sent_to_each_stream_until_a_checkpoint_includes_it() {
    let mut log = AnswerLog::after("The capital is Paris. ".into());
    assert!(!log.is_marked_sent());
    log.mark_sent();
    log.restart();
    assert_eq!(take_all(&mut log.text, &["It has "]), "It has ");
    assert!(log.is_marked_sent());
    let all = "The capital is Paris. It has ";
    assert_eq!(log.mark_sent().as_deref(), Some(all));
    log.restart();
    assert_eq!(take_all(&mut log.text, &["The capital is "]), "");
    assert_eq!(log.mark_sent().as_deref(), Some(all));
    log.restart();
    let repetition = [all, "a river."];
    assert_eq!(take_all(&mut log.text, &repetition), "a river.");
    log.checkpoint();
    assert!(!log.is_marked_sent());
    assert_eq!(log.mark_sent(), None);
}

#[test]
fn a_checkpoint_before_any_text_includes_only_text_that_was_sent() {
    let shown = "The capital is Paris. ";
    let repetition = [shown, "On the Seine."];
    let mut log = AnswerLog::after(shown.into());
    log.restart();
    log.checkpoint();
    assert_eq!(log.text.unacknowledged(), shown);
    assert_eq!(take_all(&mut log.text, &repetition), "On the Seine.");
    let mut log = AnswerLog::after(shown.into()).marked_sent();
    log.restart();
    log.checkpoint();
    assert_eq!(
        (log.text.unacknowledged(), log.is_marked_sent()),
        (String::new(), false)
    );
    assert_eq!(take_all(&mut log.text, &repetition), "On the Seine.");
}

#[test]
fn text_missing_from_a_late_checkpoint_is_shown_once() {
    let mut log = AnswerLog::default();
    take_all(&mut log.text, &["one two three four "]);
    log.checkpoint();
    log.checkpoint();
    take_all(&mut log.text, &["five "]);
    for _ in 0..2 {
        log.restart();
        let repetition = ["one two ", "three four fi", "ve six"];
        let new = take_all(&mut log.text, &repetition);
        assert!(new == "six" || new.is_empty(), "{new}");
    }
    assert_eq!(take_all(&mut log.text, &[" seven"]), " seven");
}

#[test]
fn text_that_starts_like_earlier_text_is_held_back_and_then_shown() {
    let mut log = AnswerLog::default();
    take_all(&mut log.text, &["Now the tests are run. "]);
    log.checkpoint();
    log.restart();
    assert_eq!(take_all(&mut log.text, &["Now the "]), "");
    assert_eq!(take_all(&mut log.text, &["docs."]), "Now the docs.");
    log.restart();
    assert_eq!(take_all(&mut log.text, &["Now the "]), "");
    assert_eq!(log.text.release(), "");
    assert_eq!(take_all(&mut log.text, &["docs. More."]), " More.");
}

#[test]
fn a_stream_that_was_sent_the_text_may_continue_or_repeat_it() {
    let shown = "The capital is Paris. ";
    let mut log = AnswerLog::after(shown.into());
    assert_eq!(log.mark_sent().as_deref(), Some(shown));
    log.restart();
    let continuation = ["The ", "river is the Seine."];
    assert_eq!(
        take_all(&mut log.text, &continuation),
        "The river is the Seine."
    );
    let mut log = AnswerLog::after(shown.into()).marked_sent();
    log.restart();
    let repetition = ["The capital ", "is Paris. On the Seine."];
    assert_eq!(take_all(&mut log.text, &repetition), "On the Seine.");
    assert_eq!(AnswerLog::after(" \n".into()).mark_sent(), None);
}

#[test]
fn a_short_repetition_is_shown() {
    let mut log = AnswerLog::default();
    take_all(&mut log.text, &["And then: "]);
    log.checkpoint();
    log.restart();
    assert_eq!(take_all(&mut log.text, &["And then: "]), "And then: ");
}
