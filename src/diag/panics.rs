//! What is told of a mistake of our own: where it happened, not with what. A panic's message may
//! quote the text it failed on, which may be anybody's.

use std::io::Write as _;
use std::panic::PanicHookInfo;

/// From now on, panics of this process are told in this way.
pub fn install() {
    std::panic::set_hook(Box::new(|info| {
        // One write a line: others write to stderr too.
        let _ = std::io::stderr().write_all(told(info).as_bytes());
    }));
}

fn told(info: &PanicHookInfo<'_>) -> String {
    let place = info.location().map(ToString::to_string);
    // What is not put together at run time is our own words.
    let words = info.payload().downcast_ref::<&'static str>();
    format!(
        "error: cursor-sidecar panicked at {}: {}\n",
        place.as_deref().unwrap_or("an unknown place"),
        words.copied().unwrap_or("(its message is not told)")
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
            .args(["--exact", "diag::panics::tests::a_child_that_panics"])
            .args(["--ignored", "--nocapture"])
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&child.stderr);
        assert_eq!(stderr.matches("panicked at src/diag/panics.rs").count(), 2);
        assert!(stderr.contains("words of our own"), "{stderr}");
        assert!(!stderr.contains("otters"), "{stderr}");
    }
}
