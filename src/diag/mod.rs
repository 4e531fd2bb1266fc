//! What helps a person find out what is going on: settings, the debug log, the timeline drawn
//! of it. Used by every room, uses none.
//!
//! Rooms tell what happens with `tracing` events at debug level, named by a short stable
//! message (`run.started`), with ids, counts, lengths and times as fields. Text that belongs
//! to a person is told as a [`Digest`]; secrets are made known with [`secrets`].

mod digest;
pub mod in_force;
pub mod logfile;
pub mod metrics;
pub mod panics;
pub mod parse;
pub mod place;
pub mod private;
pub mod record;
pub mod scrub;
pub mod settings;
pub mod terminal_text;
pub mod timeline;

pub use digest::{Digest, Variant, prefix};

/// The process's scrubber: whoever comes to hold a secret tells it, so that no log shows it.
pub fn secrets() -> &'static scrub::Scrubber {
    static SECRETS: std::sync::LazyLock<scrub::Scrubber> =
        std::sync::LazyLock::new(scrub::Scrubber::default);
    &SECRETS
}

/// A text of ours for a user, which may quote what others said: without the secrets we know
/// and without control characters.
pub fn presentable(text: &str) -> String {
    terminal_text::clean(&secrets().hide_known(text)).into_owned()
}
