//! The panic hook: reports where a panic happened without its formatted message, because that
//! may quote private text.

use std::io::Write as _;
use std::panic::PanicHookInfo;

/// Installs the panic hook of this process.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        // One write for the whole line, because other threads write to stderr too.
        let _ = std::io::stderr().write_all(describe(info).as_bytes());
    }));
}

fn describe(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string);
    // A static message is our own text; a formatted one is a `String` and may quote private text.
    let message = info.payload().downcast_ref::<&'static str>();
    format!(
        "error: cursor-sidecar panicked at {}: {}\n",
        place.as_deref().unwrap_or("an unknown place"),
        message.copied().unwrap_or("(message withheld)")
    )
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    const CANARY: &str = "canary words about otters, é";

    #[test]
    #[ignore = "the child of the test below"]
    fn a_child_that_panics() {
        super::install();
        let at = CANARY.len() - 1;
        let _ = std::panic::catch_unwind(|| CANARY[at..].len());
        let _ = std::panic::catch_unwind(|| panic!("words of our own"));
    }

    #[test]
    fn a_panic_does_not_quote_what_it_failed_on() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "telemetry::panics::tests::a_child_that_panics"])
            .args(["--ignored", "--nocapture"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(
            stderr
                .matches("panicked at src/telemetry/panics.rs")
                .count(),
            2
        );
        assert!(stderr.contains("words of our own"), "{stderr}");
        assert!(!stderr.contains("otters"), "{stderr}");
    }
}
