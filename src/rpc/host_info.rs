//! Facts about a host beyond what it reports.

use std::path::Path;

use serde_json::Value as Json;

use super::protocol::HostInfo;

/// pi's thinking levels; the last one was added later.
const LEVELS: [&str; 7] = ["off", "minimal", "low", "medium", "high", "xhigh", "max"];
const MAX_SINCE: [u32; 3] = [0, 80, 6];
/// How many folders above its program a package's description may be.
const FOLDERS: usize = 4;

/// Returns the thinking levels a host supports: those it reports, else those of its version of pi.
pub(super) fn thinking_levels(host: &HostInfo) -> Vec<String> {
    if !host.thinking_levels.is_empty() || host.name != "pi" {
        return host.thinking_levels.clone();
    }
    let old = version(host).is_some_and(|version| numbers(&version) < MAX_SINCE);
    let known = if old { LEVELS.len() - 1 } else { LEVELS.len() };
    LEVELS[..known].iter().map(ToString::to_string).collect()
}

/// Returns the version a host reports, else that of the package its program is in.
pub(super) fn version(host: &HostInfo) -> Option<String> {
    let program = || Path::new(host.program.as_deref()?).canonicalize().ok();
    host.version.clone().or_else(|| packaged(&program()?))
}

fn packaged(program: &Path) -> Option<String> {
    let folders = program.ancestors().skip(1).take(FOLDERS);
    folders.into_iter().find_map(|folder| {
        let text = std::fs::read_to_string(folder.join("package.json")).ok()?;
        let package: Json = serde_json::from_str(&text).ok()?;
        let name = package["name"].as_str()?;
        let version = package["version"].as_str()?;
        name.ends_with("/pi-coding-agent").then(|| version.into())
    })
}

/// Returns the numbers of a version, without a suffix such as `-beta.1`.
fn numbers(version: &str) -> [u32; 3] {
    let release = version.split(['-', '+']).next().unwrap_or_default();
    let mut parts = release.split('.').map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| parts.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(version: &str) -> HostInfo {
        let json = serde_json::json!({"name": "pi", "version": version});
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn thinking_levels_follow_the_version() {
        for (version, knows) in [("0.79.10", false), ("0.80.6-beta.1", true), ("1.5.0", true)] {
            let levels = thinking_levels(&host(version));
            assert_eq!(levels.contains(&"max".into()), knows, "{version}");
        }
        let mut other = host("0.1.0");
        other.name = "zed".into();
        assert!(thinking_levels(&other).is_empty(), "it says them itself");
        other.thinking_levels = vec!["low".into()];
        assert_eq!(thinking_levels(&other), ["low"]);
    }

    #[test]
    fn the_version_comes_from_the_package_of_the_program() {
        let root = tempfile::tempdir().unwrap();
        let program = root.path().join("dist/bundle/cli.js");
        std::fs::create_dir_all(program.parent().unwrap()).unwrap();
        std::fs::write(&program, "").unwrap();
        let mut pi = host("");
        pi.version = None;
        pi.program = program.to_str().map(str::to_owned);
        assert_eq!(version(&pi), None);
        let package = r#"{"name": "@earendil-works/pi-coding-agent", "version": "0.74.2"}"#;
        std::fs::write(root.path().join("package.json"), package).unwrap();
        assert_eq!(version(&pi).as_deref(), Some("0.74.2"));
        assert_eq!(thinking_levels(&pi).len(), 6);
    }
}
