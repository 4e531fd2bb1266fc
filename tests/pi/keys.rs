//! Which key is used: `--api-key`, then the stored one, then `CURSOR_API_KEY`.

use crate::desk::{Desk, ECHO, Version};

crate::on_every_pi!(the_nearest_key_wins);

/// The simulator refuses this one.
const REFUSED: &str = "crsr_invalid";

fn the_nearest_key_wins(version: Version) {
    let desk = Desk::playing(version, ECHO);
    let store = |key: &str| {
        let stored = format!(r#"{{"cursor":{{"type":"api_key","key":"{key}"}}}}"#);
        std::fs::write(desk.home.path().join("agent/auth.json"), stored).unwrap();
    };
    let model = ["--model", "cursor/composer-2"];
    let run = |env: &str, more: &[&str]| {
        let arguments = [&model[..], more, &["-p", "hi"]].concat();
        let mut command = desk.command(&arguments);
        let output = command.env("CURSOR_API_KEY", env).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    store("crsr_stored");
    assert_eq!(run(REFUSED, &[]), "Heard: hi\n");
    store(REFUSED);
    assert_eq!(run("crsr_environment", &[]), "");
    assert_eq!(run(REFUSED, &["--api-key", "crsr_given"]), "Heard: hi\n");
}
