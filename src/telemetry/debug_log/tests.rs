use std::sync::Mutex;

use tracing_subscriber::layer::SubscriberExt as _;

use super::*;

/// Longer than in production, because the test machine may be loaded.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(50);

/// A target whose lines the test can read.
#[derive(Clone, Default)]
struct SharedOutput(Arc<Mutex<Vec<u8>>>);

impl Write for SharedOutput {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl SharedOutput {
    fn lines(&self) -> Vec<Json> {
        let bytes = self.0.lock().unwrap().clone();
        let text = String::from_utf8(bytes).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn scrubber() -> &'static Scrubber {
    Box::leak(Box::new(Scrubber::new(["known-secret".into()])))
}

/// Records the events that `log` emits and ends the log.
fn recorded(target: impl LineSink, log: impl FnOnce()) {
    let (recorder, mut guard) = start(target, scrubber()).unwrap();
    guard.flush_timeout = FLUSH_TIMEOUT;
    let subscriber = tracing_subscriber::registry().with(recorder);
    tracing::subscriber::with_default(subscriber, log);
    drop(guard);
}

#[test]
fn a_record_holds_the_event_and_its_spans() {
    let shown = SharedOutput::default();
    recorded(shown.clone(), || {
        let turn = tracing::debug_span!("turn", turn = "t1", model = tracing::field::Empty);
        turn.record("model", "gpt");
        let _turn = turn.enter();
        let _run = tracing::debug_span!("run", run = "r1", n = 1).entered();
        tracing::debug!(n = 2, ok = true, share = 0.5, "run.started");
        tracing::warn!(event = "named", token = %"Bearer abc123", x = "known-secret");
    });
    let mut lines = shown.lines();
    for line in &mut lines {
        let line = line.as_object_mut().unwrap();
        assert!(line.shift_remove("ts").unwrap().as_u64().unwrap() > 1_700_000_000_000);
        assert!(line.shift_remove("us").unwrap().is_u64());
    }
    let lines: Vec<String> = lines.iter().map(Json::to_string).collect();
    insta::assert_snapshot!(lines.join("\n"), @r#"
    {"level":"DEBUG","target":"cursor_sidecar::telemetry::debug_log::tests","event":"run.started","run":"r1","n":2,"turn":"t1","model":"gpt","ok":true,"share":0.5}
    {"level":"WARN","target":"cursor_sidecar::telemetry::debug_log::tests","event":"named","run":"r1","n":1,"turn":"t1","model":"gpt","token":"Bearer [redacted]","x":"[redacted]"}
    {"level":"INFO","target":"cursor_sidecar::telemetry::debug_log","event":"log.ended","dropped":0,"failed":0}
    "#);
}

#[test]
fn long_texts_are_cut_after_redaction() {
    let shown = SharedOutput::default();
    recorded(shown.clone(), || {
        let text = format!("{}known-secret", "ä".repeat(MAX_TEXT / 2 - 3));
        tracing::debug!(text, "x");
    });
    let text = shown.lines()[0]["text"].as_str().unwrap().to_owned();
    assert!(
        text.contains("[redac") && text.ends_with("bytes more)"),
        "{text}"
    );
}

/// A disk that blocks until the sender is dropped.
struct Stuck(Receiver<()>, SharedOutput);

impl Write for Stuck {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        // Returns an error as soon as the sender is dropped.
        let _ = self.0.recv();
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_blocked_disk_does_not_block_logging_and_the_loss_is_reported() {
    const MORE: usize = 100;
    let shown = SharedOutput::default();
    let (hold, held) = sync_channel(0);
    let (recorder, mut guard) = start(Stuck(held, shown.clone()), scrubber()).unwrap();
    guard.flush_timeout = FLUSH_TIMEOUT;
    let subscriber = tracing_subscriber::registry().with(recorder);
    tracing::subscriber::with_default(subscriber, || {
        for n in 0..QUEUE + MORE {
            tracing::debug!(n, "x");
        }
    });
    drop(hold);
    drop(guard);
    let lines = shown.lines();
    let last = lines.last().unwrap();
    assert_eq!(last["event"], "log.ended");
    let dropped = last["dropped"].as_u64().unwrap() as usize;
    // The writer may have taken one record out of the queue before it blocked.
    assert!((MORE - 1..=MORE).contains(&dropped), "{dropped}");
    let written = lines.iter().filter(|line| line["event"] == "x").count();
    assert_eq!(written + dropped, QUEUE + MORE);
    let report = lines.iter().find(|line| line["event"] == "log.dropped");
    assert_eq!(report.unwrap()["count"], dropped);
}

/// A disk that is full for a while.
struct Full(u32, SharedOutput);

impl LineSink for Full {
    fn write_line(&mut self, line: &[u8]) -> std::io::Result<()> {
        match self.0 {
            0 => self.1.write_line(line),
            _ => {
                self.0 -= 1;
                self.1.write_line(&line[..line.len() / 2])?;
                Err(std::io::ErrorKind::StorageFull.into())
            }
        }
    }

    fn flush_lines(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_loses_only_the_lines_written_meanwhile() {
    let shown = SharedOutput::default();
    recorded(Full(1, shown.clone()), || {
        tracing::debug!("lost");
        tracing::debug!("kept");
    });
    let text = String::from_utf8(shown.0.lock().unwrap().clone()).unwrap();
    let whole: Vec<Json> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    assert_eq!(whole[0]["event"], "kept");
    assert_eq!(whole[1]["failed"], 1);
}
