//! A private temporary directory that is removed with its owner, or later.
//!
//! The owner holds a lock on a file in it. A process that is killed together with its reaper
//! leaves the directory without a lock; the next process that creates one removes it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use uuid::Uuid;

use super::reaper::ChildReaper;
use foundation::private_files;

/// The prefix of the names of all such directories.
const PREFIX: &str = "cursor-sidecar-";
const LOCK: &str = "lock";
/// A directory younger than this may still be under construction by another process.
const YOUNG: Duration = Duration::from_secs(600);

/// The temporary directory of one session.
#[derive(Debug)]
pub(super) struct SessionTempDir {
    path: PathBuf,
    reaper: ChildReaper,
    _lock: File,
}

impl SessionTempDir {
    /// Creates one, and removes those without an owner in the background.
    pub(super) fn new(home: &Path, reaper: ChildReaper) -> io::Result<Self> {
        let made = Self::make(home, reaper)?;
        let home = home.to_owned();
        // Not joined, because the caller does not depend on it.
        std::thread::spawn(move || sweep(&home));
        Ok(made)
    }

    fn make(home: &Path, reaper: ChildReaper) -> io::Result<Self> {
        let path = home.join(format!("{PREFIX}{}", Uuid::new_v4().simple()));
        reaper.keep(&path)?;
        let lock = make(&path).inspect_err(|_| {
            let _ = fs::remove_dir_all(&path);
        })?;
        Ok(Self {
            path,
            reaper,
            _lock: lock,
        })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SessionTempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        self.reaper.forget(&self.path);
    }
}

fn make(path: &Path) -> io::Result<File> {
    let builder = private_files::folder_builder();
    builder.create(path)?;
    for part in ["terminals", "agent-tools"] {
        builder.create(path.join(part))?;
    }
    let mut options = File::options();
    private_files::owner_only(options.write(true).create_new(true));
    let lock = options.open(path.join(LOCK))?;
    lock.try_lock()?;
    Ok(lock)
}

/// Removes directories without an owner.
fn sweep(home: &Path) {
    let Ok(entries) = fs::read_dir(home) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        if name.to_str().is_some_and(|name| name.starts_with(PREFIX)) && is_left(&entry.path()) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Returns whether a directory belongs to this user, is old, and is locked by no process.
fn is_left(path: &Path) -> bool {
    let Ok(about) = path.symlink_metadata() else {
        return false;
    };
    let mine = about.is_dir() && private_files::is_mine(&about);
    let age = about
        .modified()
        .ok()
        .and_then(|changed| SystemTime::now().duration_since(changed).ok());
    if !mine || age.is_none_or(|age| age < YOUNG) {
        return false;
    }
    match File::open(path.join(LOCK)) {
        Ok(lock) => lock.try_lock().is_ok(),
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_without_an_owner_are_removed() {
        let home = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - 2 * YOUNG;
        let age = |path: &Path| File::open(path).unwrap().set_modified(old).unwrap();
        let left = home.path().join("cursor-sidecar-left");
        drop(make(&left).unwrap());
        let young = home.path().join("cursor-sidecar-young");
        drop(make(&young).unwrap());
        // `new` would start a sweep of its own, which holds the locks of what it removes.
        let owned = SessionTempDir::make(home.path(), ChildReaper::default()).unwrap();
        let other = home.path().join("other");
        fs::create_dir(&other).unwrap();
        for path in [&left, owned.path(), &other] {
            age(path);
        }
        sweep(home.path());
        assert!(!left.exists());
        assert!(young.exists() && owned.path().exists() && other.exists());
        let path = owned.path().to_owned();
        drop(owned);
        assert!(!path.exists());
    }
}
