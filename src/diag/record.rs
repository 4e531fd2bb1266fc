//! The debug log: one JSON object a line, every string scrubbed, written by a thread of its
//! own.
//!
//! Whoever logs never waits: what the disk does not take in time is left out and counted.
//! The recorder takes only what this crate tells; prompts and tool output must be told as
//! [`Digest`](super::Digest)s by whoever tells them.

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value as Json, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Id, Subscriber, span};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

use super::scrub::Scrubber;

/// Records that may wait for the disk.
const QUEUE: usize = 4096;
/// No text is longer in the log.
const MAX_TEXT: usize = 2048;
/// No text is longer on its way to the scrubber, which must see secrets whole.
const MAX_RAW: usize = 64 * 1024;
/// How long the last records may take at the end of the process.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// Where lines go. A size limit is the target's own business.
pub trait Target: Send + 'static {
    /// Writes one line, with its line break.
    fn line(&mut self, line: &[u8]) -> std::io::Result<()>;
    /// Nothing more is waiting: bring what was written to where others can read it.
    fn settle(&mut self) -> std::io::Result<()>;
}

impl<W: Write + Send + 'static> Target for W {
    fn line(&mut self, line: &[u8]) -> std::io::Result<()> {
        self.write_all(line)
    }

    fn settle(&mut self) -> std::io::Result<()> {
        self.flush()
    }
}

/// A layer that records what this crate tells.
pub struct Recorder {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    started: Instant,
}

/// What the recorder, the writer and the guard know together.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    /// The process ends; a full queue has no room for being told so.
    ending: AtomicBool,
}

enum Message {
    Record(Box<Record>),
    End,
}

/// Ends the log when dropped: what is waiting is written, within a bound.
pub struct Guard {
    queue: SyncSender<Message>,
    shared: Arc<Shared>,
    done: Receiver<()>,
    patience: Duration,
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        let _ = self.queue.try_send(Message::End);
        let _ = self.done.recv_timeout(self.patience);
    }
}

struct Record {
    wall: SystemTime,
    since: Duration,
    level: &'static str,
    target: &'static str,
    fields: Fields,
}

type Fields = Map<String, Json>;

/// Starts the writer.
pub fn start(
    target: impl Target,
    scrubber: &'static Scrubber,
) -> std::io::Result<(Recorder, Guard)> {
    let (queue, messages) = sync_channel(QUEUE);
    let (tell_done, done) = sync_channel(1);
    let shared = Arc::new(Shared::default());
    let recorder = Recorder {
        queue: queue.clone(),
        shared: Arc::clone(&shared),
        started: Instant::now(),
    };
    let mut writer = Writer {
        target,
        scrubber,
        shared: Arc::clone(&shared),
        told: 0,
        failed: 0,
        torn: false,
        started: recorder.started,
    };
    std::thread::Builder::new()
        .name("debug-log".into())
        .spawn(move || {
            writer.run(&messages);
            let _ = tell_done.try_send(());
        })?;
    let guard = Guard {
        queue,
        shared,
        done,
        patience: LAST_WORDS,
    };
    Ok((recorder, guard))
}

struct Writer<T> {
    target: T,
    scrubber: &'static Scrubber,
    shared: Arc<Shared>,
    /// Dropped records the log tells of already.
    told: u64,
    /// Lines the target did not take.
    failed: u64,
    /// The last line may have been written in part.
    torn: bool,
    started: Instant,
}

impl<T: Target> Writer<T> {
    fn run(&mut self, messages: &Receiver<Message>) {
        while let Ok(message) = messages.recv() {
            let mut next = Some(message);
            while let Some(message) = next {
                let Message::Record(record) = message else {
                    return self.last(messages);
                };
                self.tell_dropped();
                self.write(*record);
                next = messages.try_recv().ok();
            }
            // Nothing is waiting: now others may want to read what there is.
            self.tell_dropped();
            let _ = self.target.settle();
            if self.shared.ending.load(Ordering::Relaxed) {
                return self.last(messages);
            }
        }
    }

    /// Writes what came between the last look and the end, then how complete the log is.
    fn last(&mut self, messages: &Receiver<Message>) {
        while let Ok(Message::Record(record)) = messages.try_recv() {
            self.write(*record);
        }
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let fields = json!({"event": "log.ended", "dropped": dropped, "failed": self.failed});
        self.own(fields);
        let _ = self.target.settle();
    }

    /// Says so when records were left out, at the place where they are missing.
    fn tell_dropped(&mut self) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > self.told {
            let more = dropped - self.told;
            self.told = dropped;
            self.own(json!({"event": "log.dropped", "count": more}));
        }
    }

    fn own(&mut self, fields: Json) {
        let Json::Object(fields) = fields else {
            return;
        };
        self.write(Record {
            wall: SystemTime::now(),
            since: self.started.elapsed(),
            level: "INFO",
            target: module_path!(),
            fields,
        });
    }

    fn write(&mut self, record: Record) {
        let mut line = Vec::with_capacity(256);
        if self.torn {
            line.push(b'\n');
        }
        let json = self.finished(record);
        // A map of strings and numbers always has a JSON form.
        let _ = serde_json::to_writer(&mut line, &json);
        line.push(b'\n');
        self.torn = self.target.line(&line).is_err();
        self.failed += u64::from(self.torn);
    }

    fn finished(&self, mut record: Record) -> Json {
        let wall = record.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        let event = record.fields.shift_remove("event");
        let message = record.fields.shift_remove("message");
        let mut line = Map::new();
        line.insert("ts".into(), json!(wall.as_millis() as u64));
        line.insert("us".into(), json!(record.since.as_micros() as u64));
        line.insert("level".into(), json!(record.level));
        line.insert("target".into(), json!(record.target));
        line.insert(
            "event".into(),
            self.scrubbed(event.or(message).unwrap_or(Json::Null)),
        );
        for (name, value) in record.fields {
            if !line.contains_key(&name) {
                line.insert(name, self.scrubbed(value));
            }
        }
        Json::Object(line)
    }

    fn scrubbed(&self, value: Json) -> Json {
        match value {
            Json::String(text) => {
                let clean = self.scrubber.scrub(&text);
                Json::from(cut(&clean, MAX_TEXT).into_owned())
            }
            other => other,
        }
    }
}

/// At most `limit` bytes of a text, and how much is missing.
fn cut(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at));
    let end = end.unwrap_or(0);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end).into()
}

impl<S> Layer<S> for Recorder
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = Collected::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<Collected>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Collected::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Collected>() {
                // From the innermost span outwards: the nearest one is right.
                for (name, value) in &of_span.0 {
                    fields.0.entry(name).or_insert_with(|| value.clone());
                }
            }
        }
        event.record(&mut fields);
        let record = Record {
            wall: SystemTime::now(),
            since: self.started.elapsed(),
            level: event.metadata().level().as_str(),
            target: event.metadata().target(),
            fields: fields.0,
        };
        let message = Message::Record(Box::new(record));
        if self.queue.try_send(message).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The fields of a span or event.
#[derive(Default)]
struct Collected(Fields);

impl Collected {
    fn put(&mut self, field: &Field, value: Json) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for Collected {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value.into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value.into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, cut(value, MAX_RAW).into_owned().into());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let text = format!("{value:?}");
        self.put(field, cut(&text, MAX_RAW).into_owned().into());
    }
}

#[cfg(test)]
mod tests;
