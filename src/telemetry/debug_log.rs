//! The debug log: one JSON object per line, every string redacted, written by its own thread.
//!
//! Logging never blocks: if the disk is too slow, records are dropped and counted. The recorder
//! receives only events of this crate, which must log prompts and tool output as
//! [`Digest`](foundation::Digest)s.
//!
//! `tracing_subscriber`'s JSON format with `tracing_appender::non_blocking` would save the thread
//! and its queue only, and lose what this log guarantees: redaction runs on the writer's thread,
//! not on the one that logs; dropped and failed records are counted in the log, where they are
//! missing; half a line on a full disk does not damage the next one; the process waits a limited
//! time at its end; files are limited by size. The format (flat records with the fields of all
//! spans, which `doctor` reads) needs the code below either way.

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

use foundation::scrub::Scrubber;

/// Maximum number of records that wait for the disk.
const QUEUE: usize = 4096;
/// Maximum length of a text in the log, in bytes.
const MAX_TEXT: usize = 2048;
/// Maximum length of a text before redaction. Longer than [`MAX_TEXT`], because the scrubber
/// recognises only complete secrets.
const MAX_RAW: usize = 64 * 1024;
/// How long the process waits at its end for the last records to be written.
const FLUSH_TIMEOUT: Duration = Duration::from_millis(200);

/// Where lines are written. The target enforces its own size limit.
pub trait LineSink: Send + 'static {
    /// Writes one line, with its line break.
    fn write_line(&mut self, line: &[u8]) -> std::io::Result<()>;
    /// Flushes written lines so that others can read them; called when no record is waiting.
    fn flush_lines(&mut self) -> std::io::Result<()>;
}

impl<W: Write + Send + 'static> LineSink for W {
    fn write_line(&mut self, line: &[u8]) -> std::io::Result<()> {
        self.write_all(line)
    }

    fn flush_lines(&mut self) -> std::io::Result<()> {
        self.flush()
    }
}

/// A tracing layer that records the events of this crate.
pub struct DebugLogLayer {
    queue: SyncSender<QueueItem>,
    shared: Arc<Shared>,
    started: Instant,
}

/// State shared by the recorder, the writer and the guard.
#[derive(Default)]
struct Shared {
    dropped: AtomicU64,
    /// Whether the process is ending. A flag, because a full queue has no room for `End`.
    ending: AtomicBool,
}

enum QueueItem {
    Record(Box<LogRecord>),
    End,
}

/// Ends the log when dropped: waits a limited time until queued records are written.
pub struct DebugLogGuard {
    queue: SyncSender<QueueItem>,
    shared: Arc<Shared>,
    done: Receiver<()>,
    flush_timeout: Duration,
}

impl Drop for DebugLogGuard {
    fn drop(&mut self) {
        self.shared.ending.store(true, Ordering::Relaxed);
        let _ = self.queue.try_send(QueueItem::End);
        let _ = self.done.recv_timeout(self.flush_timeout);
    }
}

struct LogRecord {
    wall: SystemTime,
    since: Duration,
    level: &'static str,
    target: &'static str,
    fields: LogFields,
}

type LogFields = Map<String, Json>;

/// Starts the writer thread. Returns the layer that feeds it and the guard that ends it.
pub fn start(
    target: impl LineSink,
    scrubber: &'static Scrubber,
) -> std::io::Result<(DebugLogLayer, DebugLogGuard)> {
    let (queue, messages) = sync_channel(QUEUE);
    let (done_sender, done) = sync_channel(1);
    let shared = Arc::new(Shared::default());
    let recorder = DebugLogLayer {
        queue: queue.clone(),
        shared: Arc::clone(&shared),
        started: Instant::now(),
    };
    let mut writer = LogWriter {
        target,
        scrubber,
        shared: Arc::clone(&shared),
        reported: 0,
        failed: 0,
        torn: false,
        started: recorder.started,
    };
    std::thread::Builder::new()
        .name("debug-log".into())
        .spawn(move || {
            writer.run(&messages);
            let _ = done_sender.try_send(());
        })?;
    let guard = DebugLogGuard {
        queue,
        shared,
        done,
        flush_timeout: FLUSH_TIMEOUT,
    };
    Ok((recorder, guard))
}

struct LogWriter<T> {
    target: T,
    scrubber: &'static Scrubber,
    shared: Arc<Shared>,
    /// Number of dropped records that the log has reported.
    reported: u64,
    /// Number of lines the target failed to write.
    failed: u64,
    /// The last line may have been written in part.
    torn: bool,
    started: Instant,
}

impl<T: LineSink> LogWriter<T> {
    fn run(&mut self, messages: &Receiver<QueueItem>) {
        while let Ok(message) = messages.recv() {
            let mut next = Some(message);
            while let Some(message) = next {
                let QueueItem::Record(record) = message else {
                    return self.finish(messages);
                };
                self.report_dropped();
                self.write(*record);
                next = messages.try_recv().ok();
            }
            // No record is waiting, so flush for readers of the file.
            self.report_dropped();
            let _ = self.target.flush_lines();
            if self.shared.ending.load(Ordering::Relaxed) {
                return self.finish(messages);
            }
        }
    }

    /// Writes the remaining records, then a summary of dropped and failed ones.
    fn finish(&mut self, messages: &Receiver<QueueItem>) {
        while let Ok(QueueItem::Record(record)) = messages.try_recv() {
            self.write(*record);
        }
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        let fields = json!({"event": "log.ended", "dropped": dropped, "failed": self.failed});
        self.write_event(fields);
        let _ = self.target.flush_lines();
    }

    /// Reports newly dropped records at the place where they are missing.
    fn report_dropped(&mut self) {
        let dropped = self.shared.dropped.load(Ordering::Relaxed);
        if dropped > self.reported {
            let more = dropped - self.reported;
            self.reported = dropped;
            self.write_event(json!({"event": "log.dropped", "count": more}));
        }
    }

    /// Writes an event of the log itself.
    fn write_event(&mut self, fields: Json) {
        let Json::Object(fields) = fields else {
            return;
        };
        self.write(LogRecord {
            wall: SystemTime::now(),
            since: self.started.elapsed(),
            level: "INFO",
            target: module_path!(),
            fields,
        });
    }

    fn write(&mut self, record: LogRecord) {
        let mut line = Vec::with_capacity(256);
        if self.torn {
            line.push(b'\n');
        }
        let json = self.to_json(record);
        // A map of strings and numbers always serialises.
        let _ = serde_json::to_writer(&mut line, &json);
        line.push(b'\n');
        self.torn = self.target.write_line(&line).is_err();
        self.failed += u64::from(self.torn);
    }

    fn to_json(&self, mut record: LogRecord) -> Json {
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

/// Returns at most `limit` bytes of a text, followed by how many were cut.
fn cut(text: &str, limit: usize) -> std::borrow::Cow<'_, str> {
    if text.len() <= limit {
        return text.into();
    }
    let end = (0..=limit).rev().find(|at| text.is_char_boundary(*at));
    let end = end.unwrap_or(0);
    format!("{}… ({} bytes more)", &text[..end], text.len() - end).into()
}

impl<S> Layer<S> for DebugLogLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_new_span(&self, attributes: &span::Attributes<'_>, id: &Id, context: Context<'_, S>) {
        if let Some(span) = context.span(id) {
            let mut fields = FieldCollector::default();
            attributes.record(&mut fields);
            span.extensions_mut().insert(fields);
        }
    }

    fn on_record(&self, id: &Id, values: &span::Record<'_>, context: Context<'_, S>) {
        if let Some(span) = context.span(id)
            && let Some(fields) = span.extensions_mut().get_mut::<FieldCollector>()
        {
            values.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = FieldCollector::default();
        for span in context.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<FieldCollector>() {
                // From the innermost span outwards, because the nearest value of a field applies.
                for (name, value) in &of_span.0 {
                    fields.0.entry(name).or_insert_with(|| value.clone());
                }
            }
        }
        event.record(&mut fields);
        let record = LogRecord {
            wall: SystemTime::now(),
            since: self.started.elapsed(),
            level: event.metadata().level().as_str(),
            target: event.metadata().target(),
            fields: fields.0,
        };
        let message = QueueItem::Record(Box::new(record));
        if self.queue.try_send(message).is_err() {
            self.shared.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// The fields of a span or event.
#[derive(Default)]
struct FieldCollector(LogFields);

impl FieldCollector {
    fn put(&mut self, field: &Field, value: Json) {
        self.0.insert(field.name().to_owned(), value);
    }
}

impl Visit for FieldCollector {
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
