//! What happened: every request, every frame, one verdict a run.
//!
//! Kept in memory within bounds (the oldest frames go first) and, if asked, written as
//! JSON lines while it happens. Holds no secret, see `redact`.

use std::collections::{BTreeSet, VecDeque};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde::Serialize;
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use super::exchange::{RequestHead, Security, Version};
use super::redact::{self, Bearer};
use super::schema::{self, Detail};

const MAX_REQUESTS: usize = 20_000;
const MAX_FRAMES: usize = 200_000;
const MAX_FRAME_BYTES: usize = 128 * 1024 * 1024;

/// One HTTP request.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct RequestEntry {
    /// Ordinal, from 1.
    pub n: u64,
    /// Ordinal of the connection it came on, from 1.
    pub connection: u64,
    /// `"1.1"` or `"2"`.
    pub version: &'static str,
    /// Whether it came over TLS.
    pub tls: bool,
    /// The method.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// The headers, secrets replaced.
    pub headers: Map<String, Value>,
    /// The status of the reply, once there is one.
    pub status: Option<u16>,
    /// The body of a unary call, as far as it is understood.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_json: Option<Value>,
}

/// Who sent a frame.
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
    /// Who sent it.
    pub from: Side,
    /// The flag byte of the envelope.
    pub flags: u8,
    /// The payload, unpacked, as hex.
    pub hex: String,
    /// Its name by cases: `execClientMessage.readResult`, `endStream`, `fault.cut`.
    pub kind: String,
    /// The payload as proto3 JSON.
    pub json: Value,
}

/// How a run came out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Outcome {
    /// The script was played to its end.
    #[serde(rename = "completed")]
    Completed,
    /// The client left first.
    #[serde(rename = "cancelled by client")]
    CancelledByClient,
    /// An expectation was not met.
    #[serde(rename = "failed")]
    Failed,
}

/// The judgement on one run.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub struct Verdict {
    /// Ordinal of the run, from 1.
    pub run: u64,
    /// Which scenario was played; `(built-in)` for the responder.
    pub scenario: String,
    /// Which attempt of the conversation at that scenario, from 1.
    pub attempt: usize,
    /// How it came out.
    pub outcome: Outcome,
    /// What was not as expected.
    pub failures: Vec<String>,
}

/// What a frame carries, before it is made readable.
#[derive(Debug, Clone)]
pub(super) enum Content {
    /// A message.
    Message(Bytes),
    /// The JSON that ends a stream.
    EndStream(Bytes),
    /// Something that is no envelope: a fault or raw bytes, by name.
    Fault(&'static str, Value, Bytes),
}

#[derive(Debug, Clone)]
struct Frame {
    run: u64,
    request_id: Arc<str>,
    from: Side,
    flags: u8,
    content: Content,
}

impl Frame {
    fn size(&self) -> usize {
        match &self.content {
            Content::Message(bytes) | Content::EndStream(bytes) | Content::Fault(_, _, bytes) => {
                bytes.len()
            }
        }
    }

    fn entry(&self) -> FrameEntry {
        let name = match self.from {
            Side::Client => schema::CLIENT_MESSAGE,
            Side::Server => schema::SERVER_MESSAGE,
        };
        let (payload, kind, json) = match &self.content {
            Content::Message(payload) => match schema::decode(name, payload) {
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
            Content::EndStream(payload) => (
                payload,
                "endStream".to_owned(),
                serde_json::from_slice(payload).unwrap_or(Value::Null),
            ),
            Content::Fault(kind, json, payload) => (payload, format!("fault.{kind}"), json.clone()),
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
struct Log {
    requests: VecDeque<RequestEntry>,
    next_request: u64,
    frames: VecDeque<Frame>,
    frame_bytes: usize,
    dropped_frames: u64,
    verdicts: Vec<Verdict>,
    /// Runs whose client may know of the end before there is a verdict.
    ending: BTreeSet<u64>,
}

#[derive(Debug)]
struct Files {
    requests: File,
    frames: File,
    verdicts: File,
}

#[derive(Debug)]
struct Shared {
    log: Mutex<Log>,
    files: Option<Mutex<Files>>,
    version: watch::Sender<u64>,
}

/// A handle on everything that happened so far.
#[derive(Debug, Clone)]
pub struct Recording(Arc<Shared>);

impl Recording {
    /// Starts an empty recording, with files in `folder` if one is given.
    pub(super) fn start(folder: Option<&Path>) -> std::io::Result<Self> {
        let files = match folder {
            Some(folder) => {
                std::fs::create_dir_all(folder)?;
                Some(Mutex::new(Files {
                    requests: File::create(folder.join("requests.jsonl"))?,
                    frames: File::create(folder.join("frames.jsonl"))?,
                    verdicts: File::create(folder.join("verdicts.jsonl"))?,
                }))
            }
            None => None,
        };
        Ok(Self(Arc::new(Shared {
            log: Mutex::default(),
            files,
            version: watch::Sender::new(0),
        })))
    }

    /// The requests so far, in order of arrival.
    pub fn requests(&self) -> Vec<RequestEntry> {
        self.log().requests.iter().cloned().collect()
    }

    /// The frames so far, in the order they were seen.
    pub fn frames(&self) -> Vec<FrameEntry> {
        let frames: Vec<Frame> = self.log().frames.iter().cloned().collect();
        frames.iter().map(Frame::entry).collect()
    }

    /// The verdicts so far.
    pub fn verdicts(&self) -> Vec<Verdict> {
        self.log().verdicts.clone()
    }

    /// Waits until `look` finds what it looks for.
    pub async fn wait_for<T>(&self, mut look: impl FnMut(&Self) -> Option<T>) -> T {
        let mut version = self.0.version.subscribe();
        loop {
            version.borrow_and_update();
            if let Some(found) = look(self) {
                return found;
            }
            // The sender lives in self, so this only fails when nobody can wait.
            if version.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Everything as one JSON value, as it was at one moment: making frames readable takes
    /// long enough for a whole run to end meanwhile, and its verdict must not come without
    /// its frames.
    pub fn to_json(&self) -> Value {
        let (requests, frames, verdicts, dropped) = {
            let log = self.log();
            let frames: Vec<Frame> = log.frames.iter().cloned().collect();
            (
                log.requests.clone(),
                frames,
                log.verdicts.clone(),
                log.dropped_frames,
            )
        };
        let frames: Vec<FrameEntry> = frames.iter().map(Frame::entry).collect();
        json!({
            "requests": requests,
            "frames": frames,
            "verdicts": verdicts,
            "droppedFrames": dropped,
        })
    }

    /// Notes a request; the ticket completes the entry.
    pub(super) fn request(&self, head: &RequestHead, bearer: Option<Bearer>) -> Ticket {
        let mut log = self.log();
        log.next_request += 1;
        let entry = RequestEntry {
            n: log.next_request,
            version: match head.version {
                Version::Http1 => "1.1",
                Version::Http2 => "2",
            },
            connection: head.peer.connection,
            tls: head.peer.security == Security::Tls,
            method: head.method.to_string(),
            path: head.path.clone(),
            headers: redact::headers(&head.headers, bearer),
            status: None,
            body_json: None,
        };
        if log.requests.len() == MAX_REQUESTS {
            log.requests.pop_front();
        }
        log.requests.push_back(entry.clone());
        drop(log);
        self.bump();
        Ticket {
            recording: Some(self.clone()),
            entry,
            written: false,
        }
    }

    /// Notes a frame of a run.
    pub(super) fn frame(
        &self,
        (run, request_id): (u64, &Arc<str>),
        from: Side,
        flags: u8,
        content: Content,
    ) {
        let frame = Frame {
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

    /// Notes how a run came out.
    pub(super) fn verdict(&self, verdict: Verdict) {
        if let Some(files) = &self.0.files {
            write_line(&mut lock(files).verdicts, &verdict);
        }
        let mut log = self.log();
        log.ending.remove(&verdict.run);
        log.verdicts.push(verdict);
        drop(log);
        self.bump();
    }

    /// A run's end is about to be sent.
    pub(super) fn ending(&self, run: u64) {
        self.log().ending.insert(run);
    }

    /// Waits for the verdicts on runs whose end was sent.
    pub(super) async fn judged(&self) {
        self.wait_for(|recording| recording.log().ending.is_empty().then_some(()))
            .await;
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        lock(&self.0.log)
    }

    fn bump(&self) {
        self.0.version.send_modify(|version| *version += 1);
    }
}

/// The entry of one request while it is being answered.
#[derive(Debug)]
pub(super) struct Ticket {
    recording: Option<Recording>,
    entry: RequestEntry,
    written: bool,
}

impl Ticket {
    /// A ticket nobody keeps.
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
                status: None,
                body_json: None,
            },
            written: true,
        }
    }

    /// The headers as recorded.
    pub(super) fn headers(&self) -> &Map<String, Value> {
        &self.entry.headers
    }

    /// Notes the body of a unary call.
    pub(super) fn body(&mut self, json: Value) {
        self.entry.body_json = Some(redact::body(json));
        self.update();
    }

    /// Notes the status of the reply; the entry is then complete.
    pub(super) fn status(&mut self, status: u16) {
        self.entry.status = Some(status);
        self.update();
        self.write();
    }

    fn update(&self) {
        let Some(recording) = &self.recording else {
            return;
        };
        let mut log = recording.log();
        // Recent requests are at the back.
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

impl Drop for Ticket {
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
    fn no_verdict_is_told_without_the_frames_before_it() {
        const RUNS: u64 = 2_000;
        let recording = Recording::start(None).unwrap();
        let playing = recording.clone();
        let server = std::thread::spawn(move || {
            for run in 1..=RUNS {
                let cancel = Bytes::from_static(&[0x22, 0x02, 0x1a, 0x00]);
                playing.frame(
                    (run, &"r".into()),
                    Side::Client,
                    0,
                    Content::Message(cancel),
                );
                playing.verdict(Verdict {
                    run,
                    scenario: "s".into(),
                    attempt: 1,
                    outcome: Outcome::CancelledByClient,
                    failures: Vec::new(),
                });
            }
        });
        loop {
            let told = recording.to_json();
            let count = |name: &str| told[name].as_array().unwrap().len();
            assert!(count("frames") >= count("verdicts"));
            if count("verdicts") == RUNS as usize {
                break;
            }
        }
        server.join().unwrap();
    }
}
