//! Reads files and folders within limits and records their metadata, so that nothing is read
//! again until something changes.

use std::collections::BTreeMap;
use std::fs::{self, Metadata};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The largest file that is read.
const MAX_BYTES: u64 = 512 * 1024;
/// The most bytes that are read in total.
const MAX_TOTAL_BYTES: u64 = 4 * 1024 * 1024;

/// The metadata that shows a change of a file or folder; `None` if it does not exist.
type FileStamp = Option<StampFields>;

/// Times of change, inode and size.
#[cfg(unix)]
type StampFields = (i64, i64, i64, u64, u64);
/// Times of change and creation, and size.
#[cfg(windows)]
type StampFields = (u64, u64, u64);

/// With more folders than this, a turn does not check all of them.
const MAX_FOLDERS_PER_CHECK: usize = 300;

/// The recorded metadata of every path that was checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct FileStamps {
    /// Files with settings, folders that contain some, and the places where some may appear.
    known: BTreeMap<PathBuf, FileStamp>,
    /// Folders of the workspace in which nested settings may appear.
    pub(super) folders: Arc<BTreeMap<PathBuf, FileStamp>>,
}

impl FileStamps {
    /// Whether nothing has changed.
    pub(super) fn are_current(&self) -> bool {
        self.are_known_current() && self.are_folders_current()
    }

    /// Whether no path that is known to matter has changed. Quick in a workspace of any size.
    pub(super) fn are_known_current(&self) -> bool {
        is_unchanged(&self.known)
    }

    /// Whether no folder of the workspace has changed.
    pub(super) fn are_folders_current(&self) -> bool {
        is_unchanged(&self.folders)
    }

    /// Whether a turn can check all folders.
    pub(super) fn can_check_all_folders(&self) -> bool {
        self.folders.len() <= MAX_FOLDERS_PER_CHECK
    }
}

fn is_unchanged(stamps: &BTreeMap<PathBuf, FileStamp>) -> bool {
    stamps.iter().all(|(path, stamp)| stamp_of(path) == *stamp)
}

fn stamp_of(path: &Path) -> FileStamp {
    fs::metadata(path)
        .ok()
        .map(|metadata| stamp_fields(&metadata))
}

#[cfg(unix)]
fn stamp_fields(metadata: &Metadata) -> StampFields {
    use std::os::unix::fs::MetadataExt as _;
    (
        metadata.mtime(),
        metadata.mtime_nsec(),
        metadata.ctime_nsec(),
        metadata.ino(),
        metadata.len(),
    )
}

#[cfg(windows)]
fn stamp_fields(metadata: &Metadata) -> StampFields {
    use std::os::windows::fs::MetadataExt as _;
    (
        metadata.last_write_time(),
        metadata.creation_time(),
        metadata.len(),
    )
}

/// Decodes a settings file, with `\n` line ends.
pub(super) fn as_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n")
}

/// One scan of a workspace's settings.
#[derive(Debug, Default)]
pub(super) struct ConfigReader {
    pub(super) stamps: FileStamps,
    /// Notices for the user.
    pub(super) notices: Vec<String>,
    read: u64,
}

impl ConfigReader {
    /// Records the metadata of a path and returns it; `None` if the path does not exist.
    pub(super) fn note(&mut self, path: &Path) -> Option<Metadata> {
        let metadata = fs::metadata(path).ok();
        self.stamps
            .known
            .insert(path.to_owned(), metadata.as_ref().map(stamp_fields));
        metadata
    }

    /// Records the metadata of a folder in which nested settings may appear.
    pub(super) fn note_folder(&mut self, path: &Path) {
        let stamp = stamp_of(path);
        Arc::make_mut(&mut self.stamps.folders).insert(path.to_owned(), stamp);
    }

    /// Returns the text of a regular file within the limits. A link that leads out of `within` is
    /// refused, because a project must not make us read files outside of it.
    pub(super) fn text(&mut self, path: &Path, within: Option<&Path>) -> Option<String> {
        let metadata = self.note(path)?;
        if !metadata.is_file() {
            return None;
        }
        if let Some(root) = within {
            let inside = path
                .canonicalize()
                .ok()
                .zip(root.canonicalize().ok())
                .is_some_and(|(path, root)| path.starts_with(root));
            if !inside {
                self.notices.push(format!(
                    "{} was left out: it leads out of the project",
                    path.display()
                ));
                return None;
            }
        }
        if metadata.len() > MAX_BYTES || self.read + metadata.len() > MAX_TOTAL_BYTES {
            self.notices.push(format!(
                "{} was left out: rules and skills may have {} KiB each, {} KiB together",
                path.display(),
                MAX_BYTES / 1024,
                MAX_TOTAL_BYTES / 1024
            ));
            return None;
        }
        let mut bytes = Vec::new();
        let file = fs::File::open(path);
        let read = file.and_then(|file| file.take(MAX_BYTES).read_to_end(&mut bytes));
        if let Err(error) = read {
            self.notices
                .push(format!("{} cannot be read: {error}", path.display()));
            return None;
        }
        self.read += bytes.len() as u64;
        Some(as_text(&bytes))
    }

    /// Returns the names in a folder, sorted.
    pub(super) fn names(&mut self, folder: &Path) -> Vec<String> {
        if !self.note(folder).is_some_and(|folder| folder.is_dir()) {
            return Vec::new();
        }
        let Ok(entries) = fs::read_dir(folder) else {
            return Vec::new();
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_unstable();
        names
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_shows() {
        let home = tempfile::tempdir().unwrap();
        let file = home.path().join("a.md");
        let missing = home.path().join("b.md");
        fs::write(&file, "one").unwrap();
        let reader = |path: &Path| {
            let mut reader = ConfigReader::default();
            reader.text(path, None);
            reader.names(home.path());
            reader.stamps
        };
        for change in [
            &(|| fs::write(&file, "two, longer").unwrap()) as &dyn Fn(),
            &|| fs::write(&missing, "").unwrap(),
            &|| fs::remove_file(&file).unwrap(),
        ] {
            let stamps = reader(&file);
            assert!(stamps.are_current());
            change();
            assert!(!stamps.are_current());
        }
    }

    #[test]
    fn links_out_and_odd_files_are_left_out() {
        let home = tempfile::tempdir().unwrap();
        let project = home.path().join("project");
        fs::create_dir(&project).unwrap();
        fs::write(home.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink("../secret", project.join("AGENTS.md")).unwrap();
        fs::write(project.join("long.md"), "x".repeat(600 * 1024)).unwrap();
        let mut reader = ConfigReader::default();
        assert_eq!(
            reader.text(&project.join("AGENTS.md"), Some(&project)),
            None
        );
        assert_eq!(reader.text(&project.join("long.md"), Some(&project)), None);
        assert_eq!(reader.text(&project, Some(&project)), None);
        assert_eq!(reader.notices.len(), 2);
        assert!(reader.text(&project.join("AGENTS.md"), None).is_some());
    }
}
