//! The state directory.

use std::path::{Path, PathBuf};

/// The setting that names the state directory.
pub const STATE_DIR: &str = "PI_CURSOR_STATE_DIR";

/// Returns the state directory: `PI_CURSOR_STATE_DIR`, else `cursor-sidecar` in the platform's
/// state directory (`XDG_STATE_HOME`, else `.local/state` below `home`). Does not create it.
pub fn state_dir(env: &impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Option<PathBuf> {
    let set = |name: &str| env(name).filter(|text| !text.trim().is_empty());
    if let Some(chosen) = set(STATE_DIR) {
        return std::path::absolute(chosen).ok();
    }
    let base = set("XDG_STATE_HOME")
        .map(PathBuf::from)
        // The XDG specification requires that relative paths are ignored.
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home?.join(".local/state")))?;
    Some(base.join("cursor-sidecar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_takes_precedence_over_the_platform_and_home() {
        let place = |pairs: &'static [(&str, &str)], home: Option<&str>| {
            let env = |name: &str| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            state_dir(&env, home.map(Path::new)).map(|path| path.display().to_string())
        };
        let paths: Vec<_> = [
            place(
                &[("PI_CURSOR_STATE_DIR", "/s"), ("XDG_STATE_HOME", "/x")],
                Some("/h"),
            ),
            place(
                &[("PI_CURSOR_STATE_DIR", " "), ("XDG_STATE_HOME", "/x")],
                Some("/h"),
            ),
            place(&[("XDG_STATE_HOME", "x")], Some("/h")),
            place(&[], None),
        ]
        .into();
        insta::assert_debug_snapshot!(paths, @r#"
        [
            Some(
                "/s",
            ),
            Some(
                "/x/cursor-sidecar",
            ),
            Some(
                "/h/.local/state/cursor-sidecar",
            ),
            None,
        ]
        "#);
    }
}
