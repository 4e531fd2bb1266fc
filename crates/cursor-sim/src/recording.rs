//! The recording: every request, every frame, one verdict per run.
//!
//! Kept in memory within limits (the oldest frames are dropped first) and optionally written
//! as JSON lines at once. Contains no secrets, see `redact`.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::exchange::RequestHead;
use super::redact::{self, BearerKind};
use super::schema::{self, Detail};

const MAX_REQUESTS: usize = 20_000;
const MAX_FRAMES: usize = 200_000;
const MAX_FRAME_BYTES: usize = 128 * 1024 * 1024;

/// One HTTP request.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct RequestEntry {
    /// Ordinal, from 1.
    pub n: u64,
    /// Ordinal of its connection, from 1.
    pub connection: u64,
    /// `"1.1"` or `"2"`.
    pub version: &'static str,
    /// Whether the connection uses TLS.
    pub tls: bool,
    /// The method.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// The headers, secrets replaced.
    pub headers: Map<String, Value>,
    /// The length and fingerprint of the bearer value, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer: Option<String>,
    /// The status of the response, once there is one.
    pub status: Option<u16>,
    /// The body of a unary call, if it could be decoded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_json: Option<Value>,
}

/// The sender of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Side {
    /// The client under test.
    Client,
    /// The simulator.
    Server,
}

/// One envelope of a run, or a fault in its place.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct FrameEntry {
    /// Ordinal of the run, from 1.
    pub run: u64,
    /// The run's `x-request-id`.
    pub request_id: String,
    /// Its sender.
    pub from: Side,
    /// The flag byte of the envelope.
    pub flags: u8,
    /// The decompressed payload as hex.
    pub hex: String,
    /// Its oneof cases or what it is: `execClientMessage.readResult`, `endStream`, `fault.cut`.
    pub kind: String,
    /// The payload as proto3 JSON.
    pub json: Value,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum VerdictOutcome {
    /// The script ran to its end.
    #[serde(rename = "completed")]
    Completed,
    /// The client ended its side or disconnected first.
    #[serde(rename = "cancelled by client")]
    CancelledByClient,
    /// An expectation was not met.
    #[serde(rename = "failed")]
    Failed,
}

/// The verdict on one run.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct RunVerdict {
    /// Ordinal of the run, from 1.
    pub run: u64,
    /// The name of its scenario; `(built-in)` for the responder.
    pub scenario: String,
    /// Ordinal of the attempt at that scenario, from 1.
    pub attempt: usize,
    /// How it ended.
    pub outcome: VerdictOutcome,
    /// The expectations that were not met.
    pub failures: Vec<String>,
}

/// The content of a frame, not yet decoded.
#[derive(Debug, Clone)]
pub(super) enum FrameContent {
    Message(Bytes),
    /// The JSON that ends a stream.
    EndStream(Bytes),
    /// A fault or raw bytes in place of an envelope: name, details, bytes.
    Fault(&'static str, Value, Bytes),
}

#[derive(Debug, Clone)]
struct RecordedFrame {
    run: u64,
    request_id: Arc<str>,
    from: Side,
    flags: u8,
    content: FrameContent,
}

impl RecordedFrame {
    fn size(&self) -> usize {
        match &self.content {
            FrameContent::Message(bytes)
            | FrameContent::EndStream(bytes)
            | FrameContent::Fault(_, _, bytes) => bytes.len(),
        }
    }

    fn entry(&self) -> FrameEntry {
        let name = match self.from {
            Side::Client => schema::CLIENT_MESSAGE,
            Side::Server => schema::SERVER_MESSAGE,
        };
        let (payload, kind, json) = match &self.content {
            FrameContent::Message(payload) => match schema::decode(name, payload) {
                Ok(message) => (
                    payload,
                    schema::kind(&message),
                    schema::to_json(&message, Detail::Present),
                ),
                Err(error) => (
                    payload,
                    "unreadable".to_owned(),
                    json!({ "unreadable": error.to_string() }),
                ),
            },
            FrameContent::EndStream(payload) => (
                payload,
                "endStream".to_owned(),
                serde_json::from_slice(payload).unwrap_or(Value::Null),
            ),
            FrameContent::Fault(kind, json, payload) => {
                (payload, format!("fault.{kind}"), json.clone())
            }
        };
        FrameEntry {
            run: self.run,
            request_id: self.request_id.to_string(),
            from: self.from,
            flags: self.flags,
            hex: schema::hex(payload),
            kind,
            json,
        }
    }
}

#[derive(Debug, Default)]
struct RecordingLog {
    requests: VecDeque<RequestEntry>,
    next_request: u64,
    frames: VecDeque<RecordedFrame>,
    frame_bytes: usize,
    dropped_frames: u64,
    verdicts: Vec<RunVerdict>,
    /// Runs that have sent their end but have no verdict yet.
    ending: BTreeSet<u64>,
}

#[derive(Debug)]
struct RecordingFiles {
    requests: File,
    frames: File,
    verdicts: File,
}

#[derive(Debug)]
struct RecordingInner {
    log: Mutex<RecordingLog>,
    files: Option<Mutex<RecordingFiles>>,
    version: watch::Sender<u64>,
}

/// A handle on the recording; clones share it.
#[derive(Debug, Clone)]
pub struct RecordingHandle(Arc<RecordingInner>);

impl RecordingHandle {
    /// Creates an empty recording that also writes to `folder`, if there is one.
    pub(super) fn start(folder: Option<&Path>) -> std::io::Result<Self> {
        let files = match folder {
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                Some(Mutex::new(RecordingFiles {
                    requests: File::create(folder.join("requests.jsonl"))?,
                    frames: File::create(folder.join("frames.jsonl"))?,
                    verdicts: File::create(folder.join("verdicts.jsonl"))?,
                }))
            }
            None => None,
        };
        Ok(Self(Arc::new(RecordingInner {
            log: Mutex::default(),
            files,
            version: watch::Sender::new(0),
        })))
    }

    /// Returns the requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RequestEntry> {
        self.log().requests.iter().cloned().collect()
    }

    /// Returns the frames so far, in the order they were sent or received.
    pub fn frames(&self) -> Vec<FrameEntry> {
        let frames: Vec<RecordedFrame> = self.log().frames.iter().cloned().collect();
        frames.iter().map(RecordedFrame::entry).collect()
    }

    /// Returns the verdicts so far.
    pub fn verdicts(&self) -> Vec<RunVerdict> {
        self.log().verdicts.clone()
    }

    /// Waits until `find` returns a value, and returns it.
    pub async fn wait_for<T>(&self, mut find: impl FnMut(&Self) -> Option<T>) -> T {
        let mut version = self.0.version.subscribe();
        loop {
            version.borrow_and_update();
            if let Some(found) = find(self) {
                return found;
            }
            // Never fails, because `self` holds the sender.
            if version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Returns a snapshot of everything as one JSON value. Copies under one lock before decoding,
    /// because decoding is slow and a verdict must not appear without its run's frames.
    pub fn to_json(&self) -> Value {
        let (requests, frames, verdicts, dropped) = {
            let log = self.log();
            let frames: Vec<RecordedFrame> = log.frames.iter().cloned().collect();
            (
                log.requests.clone(),
                frames,
                log.verdicts.clone(),
                log.dropped_frames,
            )
        };
        let frames: Vec<FrameEntry> = frames.iter().map(RecordedFrame::entry).collect();
        json!({
            "requests": requests,
            "frames": frames,
            "verdicts": verdicts,
            "droppedFrames": dropped,
        })
    }

    /// Adds a request; the returned recorder completes its entry.
    pub(super) fn record_request(
        &self,
        head: &RequestHead,
        bearer: Option<BearerKind>,
    ) -> RequestRecorder {
        let mut log = self.log();
        log.next_request += 1;
        let entry = RequestEntry {
            n: log.next_request,
            version: if head.version == http::Version::HTTP_2 {
                "2"
            } else {
                "1.1"
            },
            connection: head.connection.number,
            tls: head.connection.tls,
            method: head.method.to_string(),
            path: head.path.clone(),
            headers: redact::headers(&head.headers, bearer),
            bearer: redact::bearer(&head.headers),
            status: None,
            body_json: None,
        };
        if log.requests.len() == MAX_REQUESTS {
            log.requests.pop_front();
        }
        log.requests.push_back(entry.clone());
        drop(log);
        self.bump();
        RequestRecorder {
            recording: Some(self.clone()),
            entry,
            written: false,
        }
    }

    /// Adds a frame of a run.
    pub(super) fn record_frame(
        &self,
        (run, request_id): (u64, &Arc<str>),
        from: Side,
        flags: u8,
        content: FrameContent,
    ) {
        let frame = RecordedFrame {
            run,
            request_id: Arc::clone(request_id),
            from,
            flags,
            content,
        };
        if let Some(files) = &self.0.files {
            let entry = frame.entry();
            write_line(&mut lock(files).frames, &entry);
        }
        let mut log = self.log();
        log.frame_bytes += frame.size();
        log.frames.push_back(frame);
        while log.frames.len() > MAX_FRAMES || log.frame_bytes > MAX_FRAME_BYTES {
            let Some(oldest) = log.frames.pop_front() else {
                break;
            };
            log.frame_bytes -= oldest.size();
            log.dropped_frames += 1;
        }
        drop(log);
        self.bump();
    }

    /// Adds the verdict on a run.
    pub(super) fn record_verdict(&self, verdict: RunVerdict) {
        if let Some(files) = &self.0.files {
            write_line(&mut lock(files).verdicts, &verdict);
        }
        let mut log = self.log();
        log.ending.remove(&verdict.run);
        log.verdicts.push(verdict);
        drop(log);
        self.bump();
    }

    /// Notes that the end of a run is about to be sent, so that its verdict is due.
    pub(super) fn mark_ending(&self, run: u64) {
        self.log().ending.insert(run);
    }

    /// Waits until every run whose end was sent has a verdict.
    pub(super) async fn wait_for_verdicts(&self) {
        self.wait_for(|recording| recording.log().ending.is_empty().then_some(()))
            .await;
    }

    fn log(&self) -> MutexGuard<'_, RecordingLog> {
        lock(&self.0.log)
    }

    fn bump(&self) {
        self.0.version.send_modify(|version| *version += 1);
    }
}

/// Completes the entry of one request.
#[derive(Debug)]
pub(super) struct RequestRecorder {
    recording: Option<RecordingHandle>,
    entry: RequestEntry,
    written: bool,
}

impl RequestRecorder {
    /// Creates a recorder that records nothing.
    pub(super) fn unrecorded(head: &RequestHead) -> Self {
        Self {
            recording: None,
            entry: RequestEntry {
                n: 0,
                connection: 0,
                version: "",
                tls: false,
                method: head.method.to_string(),
                path: head.path.clone(),
                headers: Map::new(),
                bearer: None,
                status: None,
                body_json: None,
            },
            written: true,
        }
    }

    /// Returns the headers as recorded.
    pub(super) fn headers(&self) -> &Map<String, Value> {
        &self.entry.headers
    }

    /// Records the body of a unary call.
    pub(super) fn record_body(&mut self, json: Value) {
        self.entry.body_json = Some(redact::body(json));
        self.update();
    }

    /// Records the status of the response, which completes the entry.
    pub(super) fn record_status(&mut self, status: u16) {
        self.entry.status = Some(status);
        self.update();
        self.write();
    }

    fn update(&self) {
        let Some(recording) = &self.recording else {
            return;
        };
        let mut log = recording.log();
        // Search from the back, because recent requests are there.
        if let Some(entry) = log
            .requests
            .iter_mut()
            .rev()
            .find(|entry| entry.n == self.entry.n)
        {
            entry.clone_from(&self.entry);
        }
        drop(log);
        recording.bump();
    }

    fn write(&mut self) {
        if std::mem::replace(&mut self.written, true) {
            return;
        }
        let files = self.recording.as_ref().and_then(|r| r.0.files.as_ref());
        if let Some(files) = files {
            write_line(&mut lock(files).requests, &self.entry);
        }
    }
}

impl Drop for RequestRecorder {
    fn drop(&mut self) {
        self.write();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_line(file: &mut File, entry: &impl Serialize) {
    let Ok(mut line) = serde_json::to_vec(entry) else {
        return;
    };
    line.push(b'\n');
    if let Err(error) = file.write_all(&line) {
        tracing::warn!(%error, "cannot write the recording");
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_snapshot_with_a_verdict_has_the_frames_before_it() {
        const RUNS: u64 = 2_000;
        let recording = RecordingHandle::start(None).unwrap();
        let playing = recording.clone();
        let server = std::thread::spawn(move || {
            for run in 1..=RUNS {
                let cancel = Bytes::from_static(&[0x22, 0x02, 0x1a, 0x00]);
                playing.record_frame(
                    (run, &"r".into()),
                    Side::Client,
                    0,
                    FrameContent::Message(cancel),
                );
                playing.record_verdict(RunVerdict {
                    run,
                    scenario: "s".into(),
                    attempt: 1,
                    outcome: VerdictOutcome::CancelledByClient,
                    failures: Vec::new(),
                });
            }
        });
        loop {
            let snapshot = recording.to_json();
            let count = |name: &str| snapshot[name].as_array().unwrap().len();
            assert!(count("frames") >= count("verdicts"));
            if count("verdicts") == RUNS as usize {
                break;
            }
        }
        server.join().unwrap();
    }
}
