//! What a user at a terminal sees before the answer: a spinner with the seconds, and dimmed thinking.
//! It is written to stderr, so that the output stays clean.

use std::borrow::Cow;
use std::io::{IsTerminal as _, Write as _};
use std::time::Duration;

use crate::config::TerminalOptions;
use indicatif::{ProgressBar, ProgressStyle};

const DIM: &str = "\u{1b}[2m";
const RESET: &str = "\u{1b}[0m";
/// How often the spinner is drawn.
const TICK: Duration = Duration::from_millis(100);

/// The display while no text has arrived. Nothing is written unless it is shown.
pub(super) struct Waiting {
    is_shown: bool,
    spinner: Option<ProgressBar>,
    /// Whether the cursor is in a line of thinking.
    in_thinking: bool,
    use_color: bool,
}

impl Waiting {
    /// Starts the spinner, if stderr is a terminal too and can move its cursor.
    pub(super) fn new(is_shown: bool, terminal: &TerminalOptions) -> Self {
        Self::with_message(is_shown, terminal, "waiting for Cursor")
    }

    /// The same, with another text.
    pub(super) fn with_message(
        is_shown: bool,
        terminal: &TerminalOptions,
        message: &'static str,
    ) -> Self {
        let mut waiting = Self {
            is_shown: is_shown && !terminal.is_dumb && std::io::stderr().is_terminal(),
            spinner: None,
            in_thinking: false,
            use_color: !terminal.no_color,
        };
        waiting.wait_for(message);
        waiting
    }

    /// Displays what is waited for now, in the place of what was waited for before. Returns whether
    /// it is displayed.
    pub(super) fn wait_for(&mut self, message: impl Into<Cow<'static, str>>) -> bool {
        if self.is_shown {
            self.end();
            let spinner = ProgressBar::new_spinner().with_message(message);
            // The template is valid; if it were not, the default style is used.
            if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} {elapsed}") {
                spinner.set_style(style);
            }
            spinner.enable_steady_tick(TICK);
            self.spinner = Some(spinner);
        }
        self.is_shown
    }

    /// Shows a piece of thinking, which must not contain control characters.
    pub(super) fn thinking(&mut self, text: &str) {
        if !self.is_shown {
            return;
        }
        self.remove_spinner();
        self.in_thinking = true;
        // Ignored, because a closed stderr cannot be reported anywhere.
        let mut stderr = std::io::stderr();
        let _ = if self.use_color {
            write!(stderr, "{DIM}{text}{RESET}")
        } else {
            write!(stderr, "{text}")
        };
    }

    /// Removes the spinner and ends the line of thinking.
    pub(super) fn end(&mut self) {
        self.remove_spinner();
        if std::mem::take(&mut self.in_thinking) {
            let _ = writeln!(std::io::stderr());
        }
    }

    fn remove_spinner(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }
}
