//! Small private files: written whole or not at all, readable by their owner only.

use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// A file that could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The system said no.
    #[error("cannot {doing} {}: {cause}", path.display())]
    Io {
        /// What was tried.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A file a person may have edited is not what it should be.
    #[error("{} is damaged ({problem}); correct or remove it", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |cause| StoreError::Io { doing, path, cause }
}

/// Replaces a file's content: a reader sees the old or the new one, also after a power cut.
pub fn write(path: &Path, content: &[u8]) -> Result<(), StoreError> {
    let folder = folder(path)?;
    let temporary = path.with_extension(format!("{}.new", uuid::Uuid::new_v4()));
    let written = (|| {
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        std::fs::rename(&temporary, path)?;
        // The name is safe only once its folder is; some file systems cannot say.
        File::open(folder)?.sync_all().or(Ok(()))
    })();
    written.map_err(|cause| {
        let _ = std::fs::remove_file(&temporary);
        failed("write", path)(cause)
    })
}

/// Holds others off who read, change and write the same file. Ends with the value.
pub fn lock(path: &Path) -> Result<File, StoreError> {
    folder(path)?;
    let lock = path.with_extension("lock");
    let open = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(&lock);
    let file = open.map_err(failed("lock", &lock))?;
    file.lock().map_err(failed("lock", &lock))?;
    Ok(file)
}

/// A file's text; `None` if there is none.
pub fn read(path: &Path) -> Result<Option<String>, StoreError> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", path)(error)),
    }
}

fn folder(path: &Path) -> Result<&Path, StoreError> {
    let folder = path.parent().unwrap_or(Path::new("."));
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)
        .map_err(failed("create", folder))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn files_are_private_and_leave_nothing_behind() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("deep/er/file.json");
        for content in ["one", "two"] {
            write(&path, content.as_bytes()).unwrap();
            assert_eq!(read(&path).unwrap().as_deref(), Some(content));
        }
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        assert_eq!(mode(&root.path().join("deep")), 0o700);
        let names = std::fs::read_dir(root.path().join("deep/er")).unwrap();
        assert_eq!(names.count(), 1);
        assert_eq!(read(&root.path().join("none")).unwrap(), None);
    }

    #[test]
    fn what_cannot_be_written_is_told_with_its_name() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        std::fs::write(&file, "").unwrap();
        let error = write(&file.join("below"), b"x").unwrap_err().to_string();
        assert!(error.starts_with("cannot create "), "{error}");
        // A folder in the place of the file: the old one stays, no temporary is left.
        let folder = root.path().join("folder");
        std::fs::create_dir_all(folder.join("x")).unwrap();
        assert!(write(&folder, b"x").is_err());
        assert_eq!(std::fs::read_dir(root.path()).unwrap().count(), 2);
    }
}
