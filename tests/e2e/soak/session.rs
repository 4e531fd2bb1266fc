//! One session of a host: chapters with rounds of tools, aborts and injected messages.
//!
//! The host behaves as pi: a retryable error leaves no trace in its history; any other error keeps
//! the answer as far as it was shown, and the user sends another message. After an abort, the
//! answer is kept as far as the host has read it. Some hosts differ: they retry when the sidecar
//! has died, or read an aborted turn to its end. In all cases each marker of a chapter is in the
//! history once and in order, and none is missing unless the user has aborted the chapter.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;

use serde_json::{Value as Json, json};

use super::random::RandomNumbers;
use super::shared_sidecar::{MESSAGE_TIMEOUT, SharedSidecar, Violations};

use test_support::pi_retry_rules::{MAX_RETRIES, is_retryable};
use test_support::scenario::Steps;

/// Number of chapters in the story.
pub const CHAPTERS: usize = 2;
/// Tool rounds in a chapter; each makes a turn, and the end makes one more.
pub const ROUNDS: usize = 4;
/// Markers before each call, and before the end.
const WORDS: usize = 3;

/// Returns the story. A chapter starts when the user asks for it.
pub fn story() -> String {
    let mut steps = Steps::new();
    for chapter in 1..=CHAPTERS {
        steps = steps
            .step(json!({"exec": {"requestContextArgs": {}}, "answered_if": format!("chapter-{chapter}")}))
            .context()
            .step(json!({"thinking": "hm"}))
            .step(json!({"thinking_done": true}));
        for round in 0..=ROUNDS {
            for word in 0..WORDS {
                steps = steps.text(format!("{} ", name(chapter, round, word)));
            }
            // Pauses with and without their own checkpoint.
            if round % 2 == 1 {
                steps = steps.checkpoint();
            }
            if round < ROUNDS {
                let call = format!("c{chapter}r{round}");
                steps = steps.step(json!({
                    "exec": {
                        "mcpArgs": {
                            "name": "pi__look",
                            "providerIdentifier": "pi",
                            "toolName": "pi__look",
                            "toolCallId": call,
                            "args": {"q": call},
                        },
                    },
                    "answered_if": format!("found-{call}"),
                    "timeout_ms": 600000,
                }));
                // Checkpoints that were sent before the server received the tool result.
                if round >= 2 {
                    steps = steps.step(json!({"checkpoint": "late"}));
                }
            }
        }
        steps = steps
            .step(json!({"usage": {"inputTokens": 1, "outputTokens": 1}}))
            .checkpoint()
            .end();
    }
    let steps = steps.build();
    format!("name = \"soak\"\n[[run]]\nresumable = true\nsteps = [\n{steps}\n]\n")
}

fn name(chapter: usize, round: usize, word: usize) -> String {
    format!("c{chapter}r{round}w{word}")
}

/// What to do to a turn while it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Disturbance {
    None,
    /// Cancels; the host reads the turn to its end.
    Abort,
    /// Cancels; the host ends the turn by itself, as pi does.
    AbortUnread,
    KillSidecar,
    /// Injects a message while the model works.
    Inject,
}

/// How turns ended, by name.
pub type TurnEndCounts = BTreeMap<String, u64>;

/// Limit of user messages after failures in one chapter.
const MAX_USER_MESSAGES: usize = 8;

/// A session and the host's transcript of it.
pub struct SoakSession {
    name: String,
    shared_sidecar: Arc<SharedSidecar>,
    /// Whether its sidecar is killed now and then.
    is_killed: bool,
    messages: Vec<Json>,
    executed: BTreeMap<String, usize>,
    violations: Violations,
    turns: u64,
    /// How often a new history was started.
    phase: u64,
    chapter: usize,
    under_way: bool,
    retries: usize,
    spoken: usize,
    /// User messages of this chapter, followed by all that Cursor must have received.
    sent: Vec<String>,
    pub delivered: Vec<String>,
    /// Injected messages that no turn accepted.
    unsent: Vec<String>,
    user_messages: u64,
}

struct SoakTurn {
    text: String,
    calls: Vec<(String, Json)>,
    stop: String,
    error: String,
    /// The injected message, and whether the turn accepted it.
    injected: Option<(String, bool)>,
}

impl SoakSession {
    pub fn new(
        name: String,
        shared_sidecar: &Arc<SharedSidecar>,
        is_killed: bool,
        violations: &Violations,
    ) -> Self {
        Self {
            name,
            shared_sidecar: Arc::clone(shared_sidecar),
            is_killed,
            messages: Vec::new(),
            executed: BTreeMap::new(),
            violations: Arc::clone(violations),
            turns: 0,
            phase: 0,
            chapter: 0,
            under_way: false,
            retries: 0,
            spoken: 0,
            sent: Vec::new(),
            delivered: Vec::new(),
            unsent: Vec::new(),
            user_messages: 0,
        }
    }

    /// Starts a new history in the same session, as after `/new` or a compaction.
    pub fn start_conversation(&mut self) {
        self.phase += 1;
        self.messages.clear();
        self.executed.clear();
        self.unsent.clear();
        self.chapter = 0;
    }

    pub fn has_finished(&self, chapters: usize) -> bool {
        self.chapter >= chapters && !self.under_way
    }

    fn wrong(&self, what: &str) {
        let chapter = format!(
            "{} phase {} chapter {}",
            self.name, self.phase, self.chapter
        );
        let mut violations = self.violations.lock().unwrap();
        violations.push(format!("{chapter} turn {}: {what}", self.turns));
    }

    fn push(&mut self, mut message: Json) {
        message["timestamp"] = json!(self.phase * 1_000_000 + self.messages.len() as u64 + 1);
        self.messages.push(message);
    }

    /// Returns a unique text.
    fn words(&mut self, what: &str) -> String {
        self.user_messages += 1;
        format!("{what} ({}-{}-)", self.name, self.user_messages)
    }

    fn add_user_message(&mut self, what: &str) {
        let words = self.words(what);
        self.push(json!({"role": "user", "content": words}));
        self.sent.push(words);
    }

    /// Takes one turn and returns how it ended.
    pub fn step(&mut self, random: &mut RandomNumbers) -> String {
        if !self.under_way {
            (self.under_way, self.retries, self.spoken) = (true, 0, 0);
            self.chapter += 1;
            self.add_user_message(&format!("chapter-{}", self.chapter));
        }
        for words in std::mem::take(&mut self.unsent) {
            self.push(json!({"role": "user", "content": words}));
        }
        let disturbance = match () {
            () if random.once_in(60) => Disturbance::Abort,
            () if random.once_in(60) => Disturbance::AbortUnread,
            () if self.is_killed && random.once_in(40) => Disturbance::KillSidecar,
            () if random.once_in(20) => Disturbance::Inject,
            () => Disturbance::None,
        };
        let mut turn_result = self.turn(disturbance);
        let well = matches!(turn_result.stop.as_str(), "stop" | "toolUse");
        if let Some((words, took)) = turn_result.injected.take() {
            if !took || !well {
                self.unsent.push(words.clone());
            }
            self.sent.push(words);
        }
        let stop = turn_result.stop.clone();
        match stop.as_str() {
            "stop" => {
                self.keep(&turn_result);
                self.finish(ChapterEnd::Complete);
            }
            // The cancel and the calls crossed.
            "toolUse" if disturbance == Disturbance::Abort => {
                self.keep(&turn_result);
                for (id, _) in &turn_result.calls {
                    self.result(id, Err("Operation aborted"));
                }
                self.finish(ChapterEnd::Aborted);
            }
            "toolUse" => {
                self.keep(&turn_result);
                self.execute(&turn_result.calls);
                self.retries = 0;
                let last = json!(self.last_call());
                let calls_last = turn_result.calls.iter().any(|(_, q)| *q == last);
                if calls_last && random.once_in(8) {
                    self.add_user_message("and hurry");
                }
            }
            "aborted" => {
                self.keep(&turn_result);
                self.finish(ChapterEnd::Aborted);
            }
            // A host that retries keeps nothing; pi keeps what it has shown.
            "gone" if random.once_in(2) => {}
            "gone" => self.fail(&turn_result),
            _ => {
                if turn_result.error.contains("scenario ") {
                    self.wrong(&turn_result.error);
                }
                if is_retryable(&turn_result.error) && self.retries < MAX_RETRIES {
                    self.retries += 1
                } else {
                    self.fail(&turn_result)
                }
                return format!("error: {}", turn_result.error);
            }
        }
        stop
    }

    /// Keeps a failed answer as far as it was shown, and sends another user message.
    fn fail(&mut self, turn_result: &SoakTurn) {
        self.keep(turn_result);
        self.retries = 0;
        self.spoken += 1;
        if self.spoken > MAX_USER_MESSAGES {
            self.wrong("it breaks again and again");
            return self.finish(ChapterEnd::Aborted);
        }
        self.add_user_message("go on");
    }

    fn last_call(&self) -> String {
        format!("c{}r{}", self.chapter, ROUNDS - 1)
    }

    fn turn(&mut self, disturbance: Disturbance) -> SoakTurn {
        self.turns += 1;
        let id = format!("{}-{}", self.name, self.turns);
        let params = json!({"turnId": id, "sessionId": self.name, "workspace": "/workspace",
            "systemPrompt": "Tell it.", "messages": self.messages,
            "tools": [{"name": "look", "description": "looks",
                "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        let delivered = self.shared_sidecar.begin(&id, "turn/start", &params);
        let mut turn_result = SoakTurn {
            text: String::new(),
            calls: Vec::new(),
            stop: "gone".into(),
            error: String::new(),
            injected: None,
        };
        let mut to_do = disturbance;
        let mut asked = None;
        let mut deaf = false;
        loop {
            let message = match delivered.recv_timeout(MESSAGE_TIMEOUT) {
                Ok(message) => message,
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    self.wrong("it hangs");
                    turn_result.stop = "hung".into();
                    break;
                }
            };
            if message["id"] == id.as_str() {
                let result = &message["result"];
                turn_result.stop = result["stopReason"].as_str().unwrap_or("refused").into();
                turn_result.error = result["errorMessage"].as_str().unwrap_or_default().into();
                if let Some(error) = message.get("error") {
                    self.wrong(&format!("refused: {error}"));
                }
                break;
            }
            if deaf {
                continue;
            }
            for event in message["params"]["events"].as_array().into_iter().flatten() {
                match event["type"].as_str().unwrap() {
                    "text" => turn_result.text.push_str(event["text"].as_str().unwrap()),
                    "toolCall" => turn_result.calls.push((
                        event["id"].as_str().unwrap().into(),
                        event["arguments"]["q"].clone(),
                    )),
                    _ => {}
                }
            }
            match std::mem::replace(&mut to_do, Disturbance::None) {
                Disturbance::None => {}
                Disturbance::Abort | Disturbance::AbortUnread => {
                    deaf = disturbance == Disturbance::AbortUnread;
                    self.shared_sidecar
                        .send_unanswered("turn/cancel", &json!({"turnId": id}));
                }
                Disturbance::KillSidecar => self.shared_sidecar.kill(),
                Disturbance::Inject => {
                    let words = self.words("by the way");
                    let params = json!({"turnId": id, "text": words});
                    let answer =
                        self.shared_sidecar
                            .begin(&format!("{id}-inject"), "turn/inject", &params);
                    asked = Some((words, answer));
                }
            }
        }
        if deaf {
            turn_result.stop = "aborted".into();
            turn_result.calls.clear();
        }
        turn_result.injected = asked.map(|(words, answer)| {
            let answer = answer.recv_timeout(MESSAGE_TIMEOUT).unwrap_or_default();
            (words, answer["result"]["taken"] == true)
        });
        turn_result
    }

    fn keep(&mut self, turn_result: &SoakTurn) {
        let mut content = Vec::new();
        if !turn_result.text.is_empty() {
            content.push(json!({"type": "text", "text": turn_result.text}));
        }
        content.extend(turn_result.calls.iter().map(
            |(id, q)| json!({"type": "toolCall", "id": id, "name": "look", "arguments": {"q": q}}),
        ));
        let stop = match turn_result.stop.as_str() {
            stop @ ("stop" | "toolUse" | "aborted") => stop,
            _ => "error",
        };
        self.push(json!({"role": "assistant", "content": content, "stopReason": stop}));
    }

    fn execute(&mut self, calls: &[(String, Json)]) {
        for (id, q) in calls {
            let q = q.as_str().unwrap();
            let times = self.executed.entry(q.into()).or_default();
            *times += 1;
            if *times > 1 {
                self.wrong(&format!("{q} was executed twice"));
            }
            self.result(id, Ok(&format!("found-{q}")));
        }
    }

    fn result(&mut self, id: &str, came: Result<&str, &str>) {
        let (Ok(text) | Err(text)) = came;
        self.push(
            json!({"role": "toolResult", "toolCallId": id, "toolName": "look",
            "content": [{"type": "text", "text": text}], "isError": came.is_err()}),
        );
    }

    /// Ends the chapter and checks that each marker occurs once and in order, and that none is
    /// missing from a complete chapter.
    fn finish(&mut self, end: ChapterEnd) {
        self.under_way = false;
        let sent: Vec<String> = self
            .messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .flat_map(|message| message["content"].as_array().unwrap())
            .filter_map(|block| block["text"].as_str())
            .flat_map(|text| text.split_whitespace().map(str::to_owned))
            .collect();
        let mut sorted = sent.clone();
        sorted.sort();
        sorted.dedup();
        if sorted != sent {
            self.wrong(&format!("text twice or out of order: {}", sent.join(" ")));
        }
        let start = format!("c{}", self.chapter);
        let here = sorted.iter().filter(|word| word.starts_with(&start));
        if end == ChapterEnd::Complete && here.count() != (ROUNDS + 1) * WORDS {
            self.wrong(&format!("text is missing: {}", sent.join(" ")));
        }
        let delivered = std::mem::take(&mut self.sent);
        if end == ChapterEnd::Complete {
            let unsent = &self.unsent;
            self.delivered.extend(
                delivered
                    .into_iter()
                    .filter(|words| !unsent.contains(words)),
            );
        }
    }
}

/// How a chapter ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ChapterEnd {
    Complete,
    /// The user has aborted it.
    Aborted,
}
