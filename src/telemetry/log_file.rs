//! The debug log's file: where it is, and how large it may grow.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use super::debug_log::LineSink;
use foundation::private_files;

/// A log of this size is rotated; one rotated file is kept.
const MAX_BYTES: u64 = 32 * 1024 * 1024;
/// Maximum number of logs in the directory, the new one included.
const MAX_LOGS: usize = 20;

/// Where the debug log is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogDestination {
    /// The log is off.
    Off,
    /// A new file in this directory.
    NewFileIn(PathBuf),
    /// This file.
    File(PathBuf),
    /// Nowhere: the log is on, but there is no state directory.
    NoStateDir,
}

/// Returns the directory of debug logs in a state directory.
pub fn log_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("debug")
}

/// Returns the logs in a directory, newest first.
pub fn list_logs(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut logs: Vec<PathBuf> = entries
        .map(|entry| entry.path())
        .filter(|path| {
            path.extension()
                .is_some_and(|extension| extension == "jsonl")
        })
        .collect();
    // Names start with the time, so they sort by age.
    logs.sort_unstable_by(|a, b| b.file_name().cmp(&a.file_name()));
    logs
}

/// A log file that only its owner can read.
#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    file: BufWriter<File>,
    size: u64,
    limit: u64,
}

impl LogFile {
    /// Opens a new log in a directory and removes the oldest logs beyond the maximum number.
    pub fn create_in(folder: &Path) -> io::Result<Self> {
        private_files::folder_builder()
            .recursive(true)
            .create(folder)?;
        private_files::check_folder(folder).map_err(io::Error::other)?;
        for old in list_logs(folder).into_iter().skip(MAX_LOGS - 1) {
            // An error is ignored, because another process may have removed it already.
            let _ = std::fs::remove_file(old);
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let stamp = format_utc(now.unwrap_or_default().as_secs());
        Self::open(&folder.join(format!("{stamp}-{}.jsonl", std::process::id())))
    }

    /// Opens the log at a path; appends to an existing file.
    pub fn open(path: &Path) -> io::Result<Self> {
        Self::with_limit(path, MAX_BYTES)
    }

    fn with_limit(path: &Path, limit: u64) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        private_files::owner_only(options.append(true).create(true));
        let file = private_files::never_follow(&mut options).open(path)?;
        let about = file.metadata()?;
        // Refused, because writing to a pipe or device may block.
        if !about.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        if !private_files::is_mine(&about) {
            return Err(io::Error::other("the file belongs to another user"));
        }
        private_files::close_to_others(&file)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            file: BufWriter::new(file),
            size,
            limit,
        })
    }

    /// Returns the path of the log.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the full log to `.1`, which replaces the previous one, and starts a new file.
    fn rotate(&mut self) -> io::Result<()> {
        self.file.flush()?;
        let mut rotated = self.path.clone().into_os_string();
        rotated.push(".1");
        std::fs::rename(&self.path, rotated)?;
        *self = Self::with_limit(&self.path, self.limit)?;
        Ok(())
    }
}

impl LineSink for LogFile {
    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        if self.size + line.len() as u64 > self.limit && self.size > 0 {
            self.rotate()?;
        }
        self.size += line.len() as u64;
        self.file.write_all(line)
    }

    fn flush_lines(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Formats a Unix time as `20261116T064630Z`, which sorts chronologically.
fn format_utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    // Counting years from March puts the leap day last; 400 such years have 146,097 days.
    let days = days + 719_468;
    let era = days / 146_097;
    let day = days % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let date = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year:04}{month:02}{date:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn times_are_formatted_in_utc() {
        assert_eq!(format_utc(0), "19700101T000000Z");
        assert_eq!(format_utc(951_782_399), "20000228T235959Z");
        assert_eq!(format_utc(951_782_400), "20000229T000000Z");
        assert_eq!(format_utc(1_794_811_590), "20261116T064630Z");
    }

    #[test]
    fn a_log_is_private_and_bounded() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state/debug");
        let log = LogFile::create_in(&folder).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(log.path()), 0o600);

        let path = folder.join("x.jsonl");
        std::fs::write(&path, "").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        let mut log = LogFile::with_limit(&path, 10).unwrap();
        assert_eq!(mode(&path), 0o600);
        for line in [b"1234\n", b"5678\n", b"9abc\n"] {
            log.write_line(line).unwrap();
        }
        log.flush_lines().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "9abc\n");
        let rotated = folder.join("x.jsonl.1");
        assert_eq!(std::fs::read_to_string(&rotated).unwrap(), "1234\n5678\n");
        assert_eq!(mode(&rotated), 0o600);
    }

    #[test]
    fn old_logs_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        for number in 0..30 {
            let name = format!("20200101T0000{number:02}Z-1.jsonl");
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        LogFile::create_in(folder.path()).unwrap();
        let left = list_logs(folder.path());
        assert_eq!(left.len(), MAX_LOGS);
        assert!(
            left[MAX_LOGS - 1].ends_with("20200101T000011Z-1.jsonl"),
            "{left:?}"
        );
    }

    #[test]
    fn a_directory_is_not_opened() {
        let folder = tempfile::tempdir().unwrap();
        assert!(LogFile::open(folder.path()).is_err());
    }

    /// Another user may have created the link to make us overwrite one of our own files.
    #[test]
    fn links_and_pipes_are_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("bashrc"), "mine").unwrap();
        std::os::unix::fs::symlink("bashrc", at("link.jsonl")).unwrap();
        let mut made = std::process::Command::new("mkfifo");
        assert!(
            made.arg("-m600")
                .arg(at("pipe.jsonl"))
                .status()
                .unwrap()
                .success()
        );
        for name in ["link.jsonl", "pipe.jsonl"] {
            assert!(LogFile::open(&at(name)).is_err(), "{name}");
        }
        assert_eq!(std::fs::read_to_string(at("bashrc")).unwrap(), "mine");
        let open = folder.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, std::fs::Permissions::from_mode(0o777)).unwrap();
        let error = LogFile::create_in(&open).unwrap_err().to_string();
        assert!(error.contains("other users can write to it"), "{error}");
    }
}
