//! Which files are touched, as reported by Linux.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;

/// Watches a folder and everything below it: opened, read, written, moved.
pub struct FolderWatch {
    queue: OwnedFd,
    folders: BTreeMap<i32, PathBuf>,
}

fn folders_below(folder: &Path, found: &mut Vec<PathBuf>) {
    found.push(folder.to_owned());
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            folders_below(&path, found);
        }
    }
}

impl FolderWatch {
    pub fn below(folder: &Path) -> Self {
        let queue = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        let mut found = Vec::new();
        folders_below(folder, &mut found);
        let watch = |path: PathBuf| {
            let flags = inotify::WatchFlags::ALL_EVENTS;
            (inotify::add_watch(&queue, &path, flags).unwrap(), path)
        };
        let folders = found.into_iter().map(watch).collect();
        Self { queue, folders }
    }

    /// Returns the events since the last call.
    pub fn seen(&self) -> Vec<String> {
        let mut buffer = [std::mem::MaybeUninit::uninit(); 64 * 1024];
        let mut reader = inotify::Reader::new(&self.queue, &mut buffer);
        let mut seen = Vec::new();
        while let Ok(event) = reader.next() {
            let name = event
                .file_name()
                .map_or("".into(), |name| name.to_string_lossy());
            let path = self
                .folders
                .get(&event.wd())
                .map(|folder| folder.join(&*name));
            seen.push(format!(
                "{:?} {:?}",
                event.events(),
                path.unwrap_or_default()
            ));
        }
        seen
    }
}
