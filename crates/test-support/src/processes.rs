//! What processes did, as reported by the kernel.

use std::fs;

use rustix::process::{Pid, test_kill_process};

/// Returns the fields of `/proc/<id>/stat` from the third on: the state, then numbers.
fn stat(id: i32) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, rest) = stat.rsplit_once(") ")?;
    Some(rest.split_whitespace().map(str::to_owned).collect())
}

/// Returns the peak memory of a process in KiB; `None` if it has ended or the system does not
/// report it.
pub fn peak_kib(id: u32) -> Option<u64> {
    memory_kib(id, "VmHWM:")
}

/// Returns a figure of a process's memory in KiB.
pub fn memory_kib(id: u32, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with(field))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

/// Returns whether a process is still running. A zombie does not count, because in a container it
/// may never be reaped.
pub fn is_running(id: i32) -> bool {
    let ended = stat(id).is_some_and(|fields| fields[0] == "Z");
    !ended && test_kill_process(Pid::from_raw(id).unwrap()).is_ok()
}

/// Returns whether a process with this id exists, including zombies.
pub fn exists(id: i32) -> bool {
    test_kill_process(Pid::from_raw(id).unwrap()).is_ok()
}

/// Returns the children of a process that it has not reaped.
pub fn children(id: i32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{id}/task")).unwrap();
    let lists =
        tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    all.split_whitespace()
        .map(|child| child.parse().unwrap())
        .collect()
}

/// Everything a process ever started: its children, and the page faults of those it has reaped,
/// which grow with each.
#[derive(Debug, PartialEq, Eq)]
pub struct StartedProcesses {
    children: Vec<i32>,
    faults: [u64; 2],
}

pub fn started(id: u32) -> StartedProcesses {
    let id = i32::try_from(id).unwrap();
    let fields = stat(id).unwrap();
    // Fields 11 and 13 of the whole line: page faults of reaped children.
    let faults = [8, 10].map(|at: usize| fields[at].parse().unwrap());
    StartedProcesses {
        children: children(id),
        faults,
    }
}
