//! Any text as a scenario file yields its name, or an error with its position in the file.
#![no_main]

use cursor_sim::{ScenarioError, ScenarioSource, names_of};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let (label, text) = ("some file".to_owned(), text.to_owned());
    let lines = text.split('\n').count();
    for source in [
        ScenarioSource::Toml {
            label: label.clone(),
            text: text.clone(),
        },
        ScenarioSource::Json { label, text },
    ] {
        match names_of(std::slice::from_ref(&source)) {
            Ok(names) => {
                assert_eq!(names.len(), 1);
                // The same name twice is an error.
                assert!(names_of(&[source.clone(), source]).is_err());
            }
            Err(ScenarioError::Invalid {
                file,
                line,
                message,
            }) => {
                assert_eq!(file, "some file");
                assert!(
                    (1..=lines).contains(&line),
                    "line {line} of {lines}: {message}"
                );
                assert!(!message.is_empty());
            }
            Err(error) => panic!("nothing was read from a disk: {error}"),
        }
    }
});
