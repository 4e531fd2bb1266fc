//! The part of `cargo xtask` that tests use.

use std::path::Path;

pub mod package;

/// Returns the root of the repository.
pub fn root() -> &'static Path {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    xtask.parent().unwrap_or(xtask)
}
