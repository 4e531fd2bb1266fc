//! What the paths of a request mean. Pure: nothing is looked up.

use std::path::{Path, PathBuf};

use crate::tools::paths::{meant, plain};

/// Where paths begin.
#[derive(Debug, Clone, Default)]
pub(super) struct Places {
    pub(super) workspace: PathBuf,
    pub(super) home: Option<PathBuf>,
}

impl Places {
    /// The one way to write a path that can be written in many.
    pub(super) fn of(&self, path: &str) -> PathBuf {
        meant(path, &self.workspace, self.home.as_deref())
    }

    /// A path as Cursor is told it: from the workspace on, if it lies there.
    pub(super) fn told(&self, path: &Path) -> String {
        let path = plain(path);
        let inside = path.strip_prefix(plain(&self.workspace));
        inside.unwrap_or(&path).to_string_lossy().into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_one_place_however_it_is_written() {
        let places = Places {
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
            assert_eq!(places.of(same), Path::new("/w/a.txt"), "{same}");
        }
        assert_eq!(places.of("~/a"), Path::new("/home/me/a"));
        assert_eq!(places.of("~a"), Path::new("/w/~a"));
        assert_eq!(places.told(Path::new("/w/src/./a.rs")), "src/a.rs");
        assert_eq!(places.told(Path::new("/w/../else/a.rs")), "/else/a.rs");
    }
}
