//! A host such as pi: keeps its transcript, takes turns, executes its own tools.

use std::path::Path;

use serde_json::{Value as Json, json};

use crate::sidecar::SidecarProcess;
use crate::simulator::Simulator;

/// A host with one session.
pub struct RpcSession {
    pub host: SidecarProcess,
    pub id: String,
    pub workspace: String,
    pub system: String,
    pub tools: Vec<Json>,
    pub messages: Vec<Json>,
    /// Tools it has cards for; if empty, activity is shown as text.
    pub cards: Vec<&'static str>,
    turns: u64,
}

/// The result of a turn.
#[derive(Debug, Default)]
pub struct CollectedTurn {
    pub text: String,
    pub thinking: String,
    pub calls: Vec<OfferedCall>,
    pub notices: Vec<String>,
    pub stop: String,
    pub error: String,
    pub usage: Json,
}

/// A call of a host tool.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedCall {
    pub id: String,
    pub name: String,
    pub arguments: Json,
}

pub fn tool(name: &str) -> Json {
    json!({"name": name, "description": format!("does {name}"),
           "parameters": {"type": "object", "properties": {"q": {"type": "string"}}}})
}

impl RpcSession {
    pub fn new(simulator: &Simulator, session: &str, env: &[(&str, &str)]) -> Self {
        Self::at(&simulator.url, simulator.ca.as_deref(), session, env)
    }

    /// With the URL and the CA file of a server.
    pub fn at(url: &str, ca: Option<&Path>, session: &str, env: &[(&str, &str)]) -> Self {
        let mut all = vec![("CURSOR_BACKEND_URL", url), ("CURSOR_API_KEY", "crsr_test")];
        let ca = ca.map(|ca| ca.display().to_string());
        if let Some(ca) = &ca {
            all.push(("NODE_EXTRA_CA_CERTS", ca));
        }
        all.extend_from_slice(env);
        Self::on(SidecarProcess::start(&all), session)
    }

    /// With a sidecar that was started in another way.
    pub fn on(host: SidecarProcess, session: &str) -> Self {
        Self::of(host, session, None)
    }

    /// The same, for the sidecar of a host with this process id.
    pub fn of(mut host: SidecarProcess, session: &str, process: Option<u32>) -> Self {
        host.call(
            "initialize",
            json!({"protocolVersion": 1, "nativeTools": {"default": "local"},
                   "host": {"name": "test", "processId": process}}),
        );
        Self {
            host,
            id: session.into(),
            workspace: "/workspace".into(),
            system: "Be brief.".into(),
            tools: Vec::new(),
            messages: Vec::new(),
            cards: Vec::new(),
            turns: 0,
        }
    }

    /// Returns the same transcript on another sidecar.
    pub fn moved_to(&self, simulator: &Simulator, env: &[(&str, &str)]) -> Self {
        Self {
            workspace: self.workspace.clone(),
            system: self.system.clone(),
            tools: self.tools.clone(),
            messages: self.messages.clone(),
            turns: self.turns + 100,
            ..Self::new(simulator, &self.id, env)
        }
    }

    fn stamp(&mut self) -> usize {
        self.messages.len() + 1
    }

    pub fn user(&mut self, text: &str) {
        let at = self.stamp();
        self.messages
            .push(json!({"role": "user", "content": text, "timestamp": at}));
    }

    pub fn result(&mut self, call: &OfferedCall, content: Json) {
        let at = self.stamp();
        self.messages
            .push(json!({"role": "toolResult", "toolCallId": call.id,
            "toolName": call.name, "content": content, "isError": false, "timestamp": at}));
    }

    /// Returns the parameters of the next turn.
    pub fn params(&mut self) -> Json {
        self.turns += 1;
        let surface = if self.cards.is_empty() {
            "text"
        } else {
            "cards"
        };
        json!({"turnId": format!("turn-{}", self.turns), "sessionId": self.id,
               "workspace": self.workspace, "systemPrompt": self.system, "messages": self.messages,
               "tools": self.tools, "surface": surface, "cardTools": self.cards,
               "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}})
    }

    /// Starts a turn; [`Self::finish`] reads it to its end.
    pub fn begin(&mut self) -> String {
        let params = self.params();
        self.begin_with(&params)
    }

    pub fn begin_with(&mut self, params: &Json) -> String {
        let id = params["turnId"].as_str().unwrap().to_owned();
        self.host
            .send(&json!({"jsonrpc": "2.0", "id": id, "method": "turn/start", "params": params}));
        id
    }

    /// Reads until the turn is answered; ignores responses to other requests.
    pub fn finish(&mut self, id: &str) -> CollectedTurn {
        let mut outcome = CollectedTurn::default();
        loop {
            let message = self.host.receive();
            if message["id"] == id {
                assert!(message.get("error").is_none(), "{message}");
                let result = &message["result"];
                outcome.stop = result["stopReason"].as_str().unwrap().into();
                outcome.error = result["errorMessage"].as_str().unwrap_or_default().into();
                outcome.usage = result["usage"].clone();
                break;
            }
            outcome.receive(&message);
        }
        let mut content = vec![json!({"type": "text", "text": outcome.text})];
        content.extend(outcome.calls.iter().map(|call| {
            json!({"type": "toolCall", "id": call.id, "name": call.name, "arguments": call.arguments})
        }));
        let at = self.stamp();
        self.messages
            .push(json!({"role": "assistant", "content": content,
            "stopReason": outcome.stop, "timestamp": at}));
        outcome
    }

    pub fn turn(&mut self) -> CollectedTurn {
        let id = self.begin();
        self.finish(&id)
    }

    /// Takes a turn with the given parameters.
    pub fn take(&mut self, params: Json) -> CollectedTurn {
        let id = self.begin_with(&params);
        self.finish(&id)
    }

    pub fn prompt(&mut self, text: &str) -> CollectedTurn {
        self.user(text);
        self.turn()
    }
}

impl CollectedTurn {
    pub fn receive(&mut self, message: &Json) {
        if message["method"] == "log/message" {
            self.notices
                .push(message["params"]["message"].as_str().unwrap().into());
        }
        let events = message["params"]["events"].as_array();
        for event in events.unwrap_or(&Vec::new()) {
            let text = || event["text"].as_str().unwrap();
            match event["type"].as_str().unwrap() {
                "text" => self.text.push_str(text()),
                "thinking" => self.thinking.push_str(text()),
                "toolCall" => self.calls.push(OfferedCall {
                    id: event["id"].as_str().unwrap().into(),
                    name: event["name"].as_str().unwrap().into(),
                    arguments: event["arguments"].clone(),
                }),
                _ => {}
            }
        }
    }
}
