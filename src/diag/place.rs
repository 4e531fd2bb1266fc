//! Where things are kept on this machine.

use std::path::{Path, PathBuf};

/// The folder for what survives a process: `PI_CURSOR_STATE_DIR`, else `cursor-sidecar` in the
/// platform's state folder. `None` on a machine where nobody has a home.
pub fn state_dir(env: &impl Fn(&str) -> Option<String>, home: Option<&Path>) -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = env(name).filter(|value| !value.trim().is_empty())?;
        Some(PathBuf::from(value))
    };
    if let Some(own) = folder("PI_CURSOR_STATE_DIR") {
        return Some(own);
    }
    // As the XDG rules want it, a relative path is no answer.
    let base = folder("XDG_STATE_HOME").filter(|base| base.is_absolute());
    let base = base.or_else(|| Some(home?.join(".local").join("state")))?;
    Some(base.join("cursor-sidecar"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_wins_then_the_platform() {
        let home = Some(Path::new("/home/jo"));
        let dir = |pairs: &[(&str, &str)], home| {
            let env = |name: &str| {
                let found = pairs.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            state_dir(&env, home).map(|path| path.display().to_string())
        };
        let own = ("PI_CURSOR_STATE_DIR", "/x");
        let xdg = ("XDG_STATE_HOME", "/s");
        assert_eq!(dir(&[own, xdg], home).unwrap(), "/x");
        assert_eq!(dir(&[xdg], home).unwrap(), "/s/cursor-sidecar");
        let fallback = "/home/jo/.local/state/cursor-sidecar";
        assert_eq!(
            dir(&[("XDG_STATE_HOME", "relative")], home).unwrap(),
            fallback
        );
        assert_eq!(
            dir(&[("PI_CURSOR_STATE_DIR", " ")], home).unwrap(),
            fallback
        );
        assert_eq!(dir(&[], None), None);
    }
}
