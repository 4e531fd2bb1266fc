//! What commands printed that ran here, for the cards of their calls: Cursor's own report of a
//! call may have no output, or only its beginning.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;

use super::output::{OutputPiece, OutputSpill};
use super::output_tail::{self, OutputTail};
use cursor_proto::agent::v1::OutputLocation;

/// The most calls whose output is kept.
const MAX_CALLS: usize = 64;
/// The most files of a session with the whole output of a command, and their bytes.
const MAX_FILES: usize = 64;
const MAX_FILE_BYTES: u64 = 512 * 1024 * 1024;

/// What a command printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CapturedOutput {
    /// The end of what it printed to both streams, in this order.
    pub text: String,
    /// The length of all of it.
    pub bytes: usize,
    /// The lines of all of it.
    pub lines: usize,
    /// The file that contains all of it, if it is long.
    pub file: Option<String>,
    /// Its exit code, if it exited.
    pub exit_code: Option<i32>,
}

/// Records what a running command prints.
#[derive(Debug)]
pub(crate) struct OutputRecorder {
    tail: OutputTail,
    spill: OutputSpill,
    /// The length above which the request wants the output in a file.
    threshold: Option<u64>,
}

impl OutputRecorder {
    /// Records long output in a file at `path`; without a path, only its end.
    pub(crate) fn new(threshold: Option<u64>, path: Option<PathBuf>) -> Self {
        let threshold = threshold.filter(|bytes| *bytes > 0);
        let limit = output_tail::MAX_BYTES as u64;
        let limit = threshold.map_or(limit, |bytes| bytes.min(limit));
        let limit = path.is_some().then_some(limit);
        let spill = OutputSpill::new(limit, path.unwrap_or_default());
        Self {
            tail: OutputTail::default(),
            // A text has one line more than it has line breaks.
            spill: spill.or_lines(output_tail::MAX_LINES as u64 - 1),
            threshold,
        }
    }

    pub(crate) async fn push(&mut self, piece: &OutputPiece) {
        self.tail.push(piece.text());
        if let Err(error) = self.spill.push(piece.bytes()).await {
            tracing::warn!(%error, "could not write long output to its file");
        }
    }

    /// Returns the record, and the location of the file if the request wants to know it.
    pub(crate) async fn finish(
        mut self,
        exit_code: Option<i32>,
    ) -> (CapturedOutput, Option<OutputLocation>) {
        let location = self.spill.location().await;
        let captured = CapturedOutput {
            text: self.tail.shown().0.to_owned(),
            bytes: self.tail.bytes(),
            lines: self.tail.lines(),
            file: location.as_ref().map(|file| file.file_path.clone()),
            exit_code,
        };
        let is_wanted = |file: &OutputLocation| {
            let size = u64::try_from(file.size_bytes).unwrap_or(0);
            self.threshold.is_some_and(|threshold| size > threshold)
        };
        (captured, location.filter(is_wanted))
    }
}

/// The captured output of a session, by call, and the files with whole output.
#[derive(Debug, Default)]
pub(super) struct CapturedOutputs {
    by_call: HashMap<String, CapturedOutput>,
    order: VecDeque<String>,
    files: VecDeque<(PathBuf, u64)>,
}

impl CapturedOutputs {
    /// Records the output of a call. Returns the files that must be removed now.
    pub(super) fn keep(&mut self, call: &str, captured: CapturedOutput) -> Vec<PathBuf> {
        if let Some(file) = &captured.file {
            let bytes = u64::try_from(captured.bytes).unwrap_or(u64::MAX);
            self.files.push_back((file.into(), bytes));
        }
        if self.by_call.insert(call.to_owned(), captured).is_none() {
            self.order.push_back(call.to_owned());
        }
        if self.order.len() > MAX_CALLS
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_call.remove(&oldest);
        }
        let mut removed = Vec::new();
        // The newest file is complete even if it alone exceeds the limit.
        while self.files.len() > MAX_FILES
            || (self.files.len() > 1 && self.file_bytes() > MAX_FILE_BYTES)
        {
            removed.extend(self.files.pop_front().map(|(file, _)| file));
        }
        removed
    }

    fn file_bytes(&self) -> u64 {
        self.files.iter().map(|(_, bytes)| bytes).sum()
    }

    pub(super) fn get(&self, call: &str) -> Option<CapturedOutput> {
        self.by_call.get(call).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shell::output::Utf8Chunks;

    #[test]
    fn calls_and_files_are_bounded() {
        let mut all = CapturedOutputs::default();
        let output = |n: usize, bytes: usize| CapturedOutput {
            text: n.to_string(),
            bytes,
            lines: 1,
            file: Some(format!("/tmp/{n}")),
            exit_code: Some(0),
        };
        for n in 0..MAX_CALLS {
            assert_eq!(
                all.keep(&n.to_string(), output(n, 1)),
                Vec::<PathBuf>::new()
            );
        }
        let gone = all.keep("new", output(1000, 1));
        assert_eq!(gone, [PathBuf::from("/tmp/0")]);
        assert_eq!(all.get("0"), None);
        assert_eq!(
            all.get("new").map(|output| output.text),
            Some("1000".into())
        );
        let gone = all.keep("huge", output(2000, 1 << 40));
        assert_eq!(gone.len(), MAX_FILES, "only the newest file is left");
    }

    fn piece(text: &str) -> OutputPiece {
        Utf8Chunks::default().push(text.into())
    }

    #[tokio::test]
    async fn long_output_is_in_a_private_file_and_reported_above_the_threshold() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let long = "x\n".repeat(3000);
        for (threshold, is_reported) in [(None, false), (Some(1_000_000), false), (Some(10), true)]
        {
            let path = folder.path().join(format!("{threshold:?}.txt"));
            let mut recorder = OutputRecorder::new(threshold, Some(path.clone()));
            recorder.push(&piece(&long)).await;
            let (captured, location) = recorder.finish(Some(0)).await;
            assert_eq!(location.is_some(), is_reported, "{threshold:?}");
            assert_eq!(captured.file.as_deref(), path.to_str());
            assert_eq!((captured.lines, captured.bytes), (3000, 6000));
            assert_eq!(std::fs::read_to_string(&path).unwrap(), long);
            let mode = path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600);
        }
        let short = folder.path().join("short.txt");
        let mut recorder = OutputRecorder::new(None, Some(short.clone()));
        recorder.push(&piece("a\n")).await;
        assert_eq!(recorder.finish(None).await.0.file, None);
        assert!(!short.exists());
    }
}
