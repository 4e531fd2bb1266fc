//! What every crate needs: redaction, private files, counters. Depends on none of them, and reads
//! neither environment nor settings.
//!
//! Crates log what happens as `tracing` events at debug level, named by a short stable message
//! (`run.started`), with ids, counts, lengths and times as fields. Text of the user is logged as a
//! [`Digest`]; secrets are registered with [`secrets`] so that they are redacted.

mod digest;
pub mod file_id;
pub mod metrics;
pub mod private_files;
pub mod scrub;
pub mod state_dir;
pub mod terminal_text;

pub use digest::{Digest, VariantName, prefix};

/// Returns the process-wide scrubber. Code that obtains a secret registers it here, so that no
/// log shows it.
pub fn secrets() -> &'static scrub::Scrubber {
    static SECRETS: std::sync::LazyLock<scrub::Scrubber> =
        std::sync::LazyLock::new(scrub::Scrubber::default);
    &SECRETS
}

/// Returns the text without known secrets and control characters, ready to be shown to the user.
/// For our own texts, which may quote text from servers or files.
pub fn presentable(text: &str) -> String {
    terminal_text::clean(&secrets().hide_known(text)).into_owned()
}
