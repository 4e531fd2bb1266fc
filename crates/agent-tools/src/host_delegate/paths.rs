//! Resolves the paths of a request. Pure: the file system is not accessed.

use std::path::{Path, PathBuf};

use crate::workspace::paths::{plain, resolve_path};

/// The folders that relative paths are resolved against.
#[derive(Debug, Clone, Default)]
pub(super) struct PathResolver {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
}

impl PathResolver {
    /// Returns the absolute, normalised form of a path.
    pub(super) fn of(&self, path: &str) -> PathBuf {
        resolve_path(path, &self.workspace, self.home.as_deref())
    }

    /// Returns a path as Cursor expects it: relative to the workspace if it is inside.
    pub(super) fn display(&self, path: &Path) -> String {
        let path = plain(path);
        let inside = path.strip_prefix(plain(&self.workspace));
        inside.unwrap_or(&path).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_spellings_of_a_path_resolve_to_one() {
        let resolver = PathResolver {
            workspace: "/w/".into(),
            home: Some("/home/me".into()),
        };
        for same in [
            "a.txt",
            "./a.txt",
            "/w/a.txt",
            "/w/sub/../a.txt",
            "file:///w/a.txt",
        ] {
            assert_eq!(resolver.of(same), Path::new("/w/a.txt"), "{same}");
        }
        assert_eq!(resolver.of("~/a"), Path::new("/home/me/a"));
        assert_eq!(resolver.of("~a"), Path::new("/w/~a"));
        assert_eq!(resolver.display(Path::new("/w/src/./a.rs")), "src/a.rs");
        assert_eq!(resolver.display(Path::new("/w/../else/a.rs")), "/else/a.rs");
    }
}
