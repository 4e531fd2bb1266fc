//! What processes did, as the kernel tells it.

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::inotify;
use rustix::process::{Pid, test_kill_process};

/// What the kernel says of a process: its state, then numbers, from the third field on.
fn stat(id: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Whether a process does anything still; one that ended may wait for ever to be reaped by a
/// container's first process.
pub fn lives(id: i32) -> bool {
    let ended = stat(id).is_some_and(|fields| fields[0] == "Z");
    !ended && test_kill_process(Pid::from_raw(id).unwrap()).is_ok()
}

/// Whether there is a process of this number, dead or alive.
pub fn exists(id: i32) -> bool {
    test_kill_process(Pid::from_raw(id).unwrap()).is_ok()
}

/// The processes that a process started and has not waited for.
pub fn children(id: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    all.split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

/// All that a process ever started: those that are there, and the page faults of those it
/// waited for, which grow with each.
#[derive(Debug, PartialEq, Eq)]
pub struct Started {
    children: Vec<i32>,
    faults: [u64; 2],
}

pub fn started(id: u32) -> Started {
    let id = i32::try_from(id).unwrap();
    let fields = stat(id).unwrap();
    // Fields 11 and 13 of the whole line.
    let faults = [8, 10].map(|at: usize| fields[at].parse().unwrap());
    Started {
        children: children(id),
        faults,
    }
}

/// Sees whatever is done to the files and folders below a folder: opened, read, written, moved.
pub struct Watch {
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

impl Watch {
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

    /// What was seen since the last look.
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
