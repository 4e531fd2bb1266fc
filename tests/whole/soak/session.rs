//! One session of a host: chapters with rounds of tools, aborts and words in between.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;

use serde_json::{Value as Json, json};

use super::chance::Chance;
use super::station::{PATIENCE, Station, Wrongs};

/// Chapters of the story.
pub const CHAPTERS: usize = 2;
/// Rounds of tools in a chapter; each makes a turn, and the end one more.
pub const ROUNDS: usize = 4;
/// Words before each call, and before the end.
const WORDS: usize = 3;

/// The story. A chapter begins where the person asks for it.
pub fn story() -> String {
    let mut steps = String::new();
    for chapter in 1..=CHAPTERS {
        steps += &format!(
            "{{ exec = {{ requestContextArgs = {{}} }}, told = \"chapter-{chapter}\" }},\n{{ exec = {{ requestContextArgs = {{}} }} }},\n{{ thinking = \"hm\" }}, {{ thinking_done = true }},\n"
        );
        for round in 0..=ROUNDS {
            for word in 0..WORDS {
                steps += &format!("{{ text = \"{} \" }},\n", name(chapter, round, word));
            }
            // Pauses with and without a checkpoint of their own.
            if round % 2 == 1 {
                steps += "{ checkpoint = \"auto\" },\n";
            }
            if round < ROUNDS {
                let call = format!("c{chapter}r{round}");
                steps += &format!(
                    "{{ exec = {{ mcpArgs = {{ name = \"pi__look\", providerIdentifier = \"pi\", toolName = \"pi__look\", toolCallId = \"{call}\", args = {{ q = \"{call}\" }} }} }}, told = \"found-{call}\", timeout_ms = 600000 }},\n"
                );
            }
        }
        steps += "{ usage = { inputTokens = 1, outputTokens = 1 } },\n{ checkpoint = \"auto\" },\n{ end = true },\n";
    }
    format!("name = \"soak\"\n[[run]]\nstory = true\nsteps = [\n{steps}]\n")
}

fn name(chapter: usize, round: usize, word: usize) -> String {
    format!("c{chapter}r{round}w{word}")
}

/// What is asked of a turn besides its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mischief {
    None,
    Abort,
    KillSidecar,
}

/// How turns ended, by name.
pub type Tally = BTreeMap<String, u64>;

/// A session and the host's memory of it.
pub struct Session {
    name: String,
    station: Arc<Station>,
    /// Whether its sidecar is killed now and then.
    mortal: bool,
    messages: Vec<Json>,
    executed: BTreeMap<String, usize>,
    wrongs: Wrongs,
    turns: u64,
    /// How often the history has begun anew.
    phase: u64,
    chapter: usize,
    under_way: bool,
    retries: usize,
    /// Nothing of this chapter was given up.
    whole: bool,
    /// What a turn had said when its sidecar was killed: seen, though not kept.
    seen: String,
}

struct Taken {
    text: String,
    calls: Vec<(String, Json)>,
    stop: String,
    error: String,
}

impl Session {
    pub fn new(name: String, station: &Arc<Station>, mortal: bool, wrongs: &Wrongs) -> Self {
        Self {
            name,
            station: Arc::clone(station),
            mortal,
            messages: Vec::new(),
            executed: BTreeMap::new(),
            wrongs: Arc::clone(wrongs),
            turns: 0,
            phase: 0,
            chapter: 0,
            under_way: false,
            retries: 0,
            whole: true,
            seen: String::new(),
        }
    }

    /// Begins a new history in the same session, as after `/new` or a compaction.
    pub fn begin_anew(&mut self) {
        self.phase += 1;
        self.messages.clear();
        self.executed.clear();
        self.seen.clear();
        self.chapter = 0;
    }

    pub fn has_told(&self, chapters: usize) -> bool {
        self.chapter >= chapters && !self.under_way
    }

    fn wrong(&self, what: &str) {
        let chapter = format!(
            "{} phase {} chapter {}",
            self.name, self.phase, self.chapter
        );
        let mut wrongs = self.wrongs.lock().unwrap();
        wrongs.push(format!("{chapter} turn {}: {what}", self.turns));
    }

    fn push(&mut self, mut message: Json) {
        message["timestamp"] = json!(self.phase * 1_000_000 + self.messages.len() as u64 + 1);
        self.messages.push(message);
    }

    /// Takes one turn, and says how it ended.
    pub fn step(&mut self, chance: &mut Chance) -> String {
        if !self.under_way {
            (self.under_way, self.retries, self.whole) = (true, 0, true);
            self.chapter += 1;
            let words = format!("chapter-{}", self.chapter);
            self.push(json!({"role": "user", "content": words}));
        }
        let mischief = match () {
            () if chance.once_in(40) => Mischief::Abort,
            () if self.mortal && chance.once_in(40) => Mischief::KillSidecar,
            () => Mischief::None,
        };
        let mut taken = self.turn(mischief);
        // A person who changes their mind too late has changed it all the same: the calls that
        // had been made are not executed.
        if mischief == Mischief::Abort && taken.stop == "toolUse" {
            taken.stop = "aborted".into();
        }
        match taken.stop.as_str() {
            "stop" => {
                self.keep(&taken);
                self.finish();
            }
            "toolUse" => {
                self.keep(&taken);
                self.execute(&taken.calls);
                if taken
                    .calls
                    .iter()
                    .any(|(_, q)| q == &json!(self.last_call()))
                    && chance.once_in(8)
                {
                    self.push(json!({"role": "user", "content": "and hurry"}));
                }
            }
            "gone" => self.seen += &taken.text,
            "aborted" => {
                self.whole = false;
                if !taken.text.is_empty() {
                    let stopped = Taken {
                        calls: Vec::new(),
                        ..taken
                    };
                    self.keep(&stopped);
                    self.finish();
                    return stopped.stop;
                }
                self.finish();
            }
            _ => {
                self.whole = false;
                self.retries += 1;
                if taken.error.contains("scenario ") {
                    self.wrong(&taken.error);
                }
                if self.retries > 3 {
                    self.finish();
                }
                return format!("error: {}", taken.error);
            }
        }
        taken.stop
    }

    fn last_call(&self) -> String {
        format!("c{}r{}", self.chapter, ROUNDS - 1)
    }

    fn turn(&mut self, mischief: Mischief) -> Taken {
        self.turns += 1;
        let id = format!("{}-{}", self.name, self.turns);
        let params = json!({"turnId": id, "sessionId": self.name, "workspace": "/workspace",
            "systemPrompt": "Tell it.", "messages": self.messages,
            "tools": [{"name": "look", "description": "looks",
                "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}}],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        let heard = self.station.begin(&id, "turn/start", &params);
        let mut taken = Taken {
            text: String::new(),
            calls: Vec::new(),
            stop: "gone".into(),
            error: String::new(),
        };
        let mut mischief = mischief;
        loop {
            let message = match heard.recv_timeout(PATIENCE) {
                Ok(message) => message,
                Err(RecvTimeoutError::Disconnected) => return taken,
                Err(RecvTimeoutError::Timeout) => {
                    self.wrong("it hangs");
                    taken.stop = "hung".into();
                    return taken;
                }
            };
            if message["id"] == id.as_str() {
                let result = &message["result"];
                taken.stop = result["stopReason"].as_str().unwrap_or("refused").into();
                taken.error = result["errorMessage"].as_str().unwrap_or_default().into();
                if let Some(error) = message.get("error") {
                    self.wrong(&format!("refused: {error}"));
                }
                return taken;
            }
            for event in message["params"]["events"].as_array().into_iter().flatten() {
                match event["type"].as_str().unwrap() {
                    "text" => taken.text.push_str(event["text"].as_str().unwrap()),
                    "toolCall" => taken.calls.push((
                        event["id"].as_str().unwrap().into(),
                        event["arguments"]["q"].clone(),
                    )),
                    _ => {}
                }
            }
            match std::mem::replace(&mut mischief, Mischief::None) {
                Mischief::None => {}
                Mischief::Abort => self.station.aside("turn/cancel", &json!({"turnId": id})),
                Mischief::KillSidecar => self.station.kill(),
            }
        }
    }

    fn keep(&mut self, taken: &Taken) {
        let mut content = vec![json!({"type": "text", "text": taken.text})];
        content.extend(taken.calls.iter().map(
            |(id, q)| json!({"type": "toolCall", "id": id, "name": "look", "arguments": {"q": q}}),
        ));
        self.push(json!({"role": "assistant", "content": content, "stopReason": taken.stop}));
    }

    fn execute(&mut self, calls: &[(String, Json)]) {
        for (id, q) in calls {
            let q = q.as_str().unwrap();
            let times = self.executed.entry(q.into()).or_default();
            *times += 1;
            if *times > 1 {
                self.wrong(&format!("{q} was executed twice"));
            }
            self.push(
                json!({"role": "toolResult", "toolCallId": id, "toolName": "look",
                "content": [{"type": "text", "text": format!("found-{q}")}], "isError": false}),
            );
        }
    }

    /// The chapter is over: was every word said once, in order?
    fn finish(&mut self) {
        self.under_way = false;
        let said: Vec<String> = self
            .messages
            .iter()
            .filter(|message| message["role"] == "assistant")
            .filter_map(|message| message["content"][0]["text"].as_str())
            .flat_map(|text| text.split_whitespace().map(str::to_owned))
            .collect();
        let mut sorted = said.clone();
        sorted.sort();
        sorted.dedup();
        if sorted != said {
            self.wrong(&format!("text twice or out of order: {}", said.join(" ")));
        }
        let start = format!("c{}", self.chapter);
        let seen = self.seen.split_whitespace().map(str::to_owned);
        let all: BTreeSet<String> = said.iter().cloned().chain(seen).collect();
        let here = all.iter().filter(|word| word.starts_with(&start)).count();
        if self.whole && here != (ROUNDS + 1) * WORDS {
            self.wrong(&format!("text is missing: {all:?}"));
        }
    }
}
