//! pi on a terminal that tmux renders and we read.

use std::process::Command;

use crate::pi_env::PiEnv;
use crate::wait::until_named;

pub struct PiScreen<'a> {
    pi_env: &'a PiEnv,
}

impl<'a> PiScreen<'a> {
    /// Starts pi with a first message and waits for the answer, because input that is typed while
    /// pi starts up is rejected.
    pub fn start(pi_env: &'a PiEnv, prompt: &str, answer: &str) -> Self {
        let screen = Self::with(pi_env, &["--model", "cursor/composer-2", prompt]);
        screen.shows(answer);
        screen
    }

    /// Starts pi with these arguments.
    pub fn with(pi_env: &'a PiEnv, more: &[&str]) -> Self {
        Self::run(pi_env, pi_env.arguments(more), "45")
    }

    /// Runs pi on a screen with this many rows.
    pub fn run(pi_env: &'a PiEnv, pi: Vec<String>, rows: &str) -> Self {
        let screen = Self { pi_env };
        let workspace = pi_env.workspace.to_str().unwrap().to_owned();
        let mut arguments: Vec<String> = ["-f", "/dev/null", "new-session", "-d"]
            .map(Into::into)
            .into();
        arguments.extend(["-x", "110", "-y", rows, "-c", &workspace, "env", "-i"].map(Into::into));
        let environment = pi_env.environment();
        arguments.extend(
            environment
                .iter()
                .map(|(name, value)| format!("{name}={value}")),
        );
        arguments.extend(pi);
        // In the same tmux command, so that no output is missed.
        let raw = format!("cat > '{}'", screen.raw_file().display());
        arguments.extend([";", "pipe-pane", "-o", &raw].map(Into::into));
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        screen.tmux(&arguments);
        screen
    }

    fn tmux(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux")
            .arg("-S")
            .arg(self.pi_env.home.path().join("tmux"))
            .args(arguments)
            .output()
            .expect("tmux is needed to look at pi's screen; install it");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn raw_file(&self) -> std::path::PathBuf {
        self.pi_env.home.path().join("printed")
    }

    /// Returns all bytes that were sent to the terminal.
    pub fn raw(&self) -> String {
        let bytes = std::fs::read(self.raw_file()).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    pub fn text(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-J"])
    }

    /// Returns the screen with its colours.
    pub fn coloured(&self) -> String {
        self.tmux(&["capture-pane", "-p", "-e", "-N"])
    }

    /// Saves the screen in the folder `KEEP_SCREENS`; docs/pictures are made from it.
    pub fn keep(&self, name: &str) {
        if let Ok(folder) = std::env::var("KEEP_SCREENS") {
            let file = std::path::Path::new(&folder).join(name);
            std::fs::write(file, self.coloured()).unwrap();
        }
    }

    /// Waits until the screen contains a text; returns the whole screen.
    #[track_caller]
    pub fn shows(&self, wanted: &str) -> String {
        let what = format!("{wanted:?} on the screen");
        self.becomes(&what, |screen| screen.contains(wanted))
    }

    /// Waits until the screen matches; returns the whole screen.
    #[track_caller]
    pub fn becomes(&self, what: &str, fits: impl Fn(&str) -> bool) -> String {
        let mut last = String::new();
        until_or(what, &mut last, |last| {
            *last = self.text();
            fits(last)
        });
        last
    }

    pub fn keys(&self, keys: &[&str]) {
        self.tmux(&[&["send-keys"], keys].concat());
    }

    pub fn type_in(&self, text: &str) {
        self.tmux(&["send-keys", "-l", text]);
    }

    /// Ends pi as a user does, and waits until it has exited.
    #[track_caller]
    pub fn quit(&self) {
        self.keys(&["C-d"]);
        self.becomes("the end of pi", |_| {
            self.tmux(&["list-sessions"]).is_empty()
        });
    }

    /// Types a line and sends it.
    pub fn enter(&self, line: &str) {
        self.type_in(line);
        self.shows(line);
        self.keys(&["Enter"]);
    }
}

impl Drop for PiScreen<'_> {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Like `until_named`, and prints the last state on failure.
#[track_caller]
fn until_or(what: &str, last: &mut String, mut look: impl FnMut(&mut String) -> bool) {
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        until_named(what, || look(last).then_some(()));
    }));
    assert!(found.is_ok(), "waited in vain for {what}; instead:\n{last}");
}
