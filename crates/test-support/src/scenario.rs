//! Scripts for the simulator: steps, runs and simulators that play them.

use std::fmt::Display;
use std::io::Write as _;

use serde_json::{Value as Json, json};

use crate::simulator::{Simulator, Transport};

/// Returns a scenario with these steps for each run.
pub fn document(name: &str, runs: &[impl Display]) -> String {
    let runs = runs
        .iter()
        .map(|steps| format!("[[run]]\nsteps = [ {steps} ]\n"));
    format!("name = \"{name}\"\n{}", runs.collect::<String>())
}

/// Returns a simulator that plays a scenario.
pub fn simulate(transport: Transport, scenario: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    file.write_all(scenario.as_bytes()).unwrap();
    Simulator::with(transport, file.path())
}

/// Returns a simulator that plays `steps` at every run.
pub fn playing(transport: Transport, steps: &str) -> Simulator {
    simulate(transport, &document("steps", &[steps]))
}

/// Returns a simulator that plays different steps at each run of a conversation.
pub fn script(runs: &[&str]) -> Simulator {
    simulate(Transport::H2c, &document("script", runs))
}

/// The same, and ends each run.
pub fn runs(steps: &[String]) -> Simulator {
    let runs: Vec<String> = steps
        .iter()
        .map(|steps| format!("{steps}, {END}"))
        .collect();
    simulate(Transport::H2c, &document("runs", &runs))
}

pub const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";

pub const END: &str = r#"{ usage = { inputTokens = 100, outputTokens = 5, cacheReadTokens = 0, cacheWriteTokens = 0 } }, { checkpoint = "auto" }, { end = true }"#;

/// An exec request that calls `pi__<name>` and expects `expect` as its result.
pub fn calls(name: &str, args: &str, options: &str, expect: &str) -> String {
    let tool = format!("pi__{name}");
    let mut step = value(format!("{{ {} }}", options.trim().trim_end_matches(',')));
    step["exec"] = json!({"mcpArgs": {"name": tool, "providerIdentifier": "pi", "toolName": tool,
        "toolCallId": format!("call-{name}"), "args": value(args)}});
    step["expect"] = json!({"mcpResult": value(expect)});
    inline(&step)
}

/// Returns the result of a call: a text.
pub fn text(text: &str) -> String {
    inline(&json!({"success": {"content": [{"text": {"text": text}}]}}))
}

/// Returns a call of a tool of an MCP server.
pub fn call(server: &str, tool: &str, args: &str, expect: &str) -> String {
    let call = json!({"name": format!("{server}-{tool}"), "providerIdentifier": server,
        "toolName": tool, "toolCallId": "c", "args": value(args)});
    let expect = json!({"mcpResult": value(expect)});
    inline(&json!({"exec": {"mcpArgs": call}, "expect": expect}))
}

/// Returns an exec request of a native tool and its expected result.
pub fn exec(args: &str, expect: &str) -> String {
    inline(&json!({"exec": value(args), "expect": value(expect)}))
}

/// Builds the steps of a run, in the TOML that the simulator reads.
#[derive(Debug, Default, Clone)]
pub struct Steps(Vec<String>);

impl Steps {
    pub fn new() -> Self {
        Self::default()
    }

    /// Appends any step; `cursor-sim/src/scenario/step.rs` lists them.
    pub fn step(mut self, step: Json) -> Self {
        self.0.push(inline(&step));
        self
    }

    /// Appends steps that are already in TOML. There may be none, or a comma after them.
    pub fn then(mut self, steps: impl Display) -> Self {
        let steps = steps.to_string();
        let steps = steps.trim().trim_end_matches(',');
        if !steps.is_empty() {
            self.0.push(steps.to_owned());
        }
        self
    }

    /// Requests the context, which a client sends with its rules and tools.
    pub fn context(self) -> Self {
        self.step(json!({"exec": {"requestContextArgs": {}}}))
    }

    pub fn text(self, text: impl Display) -> Self {
        self.step(json!({"text": text.to_string()}))
    }

    pub fn checkpoint(self) -> Self {
        self.step(json!({"checkpoint": "auto"}))
    }

    pub fn usage(self) -> Self {
        self.step(json!({"usage": {}}))
    }

    pub fn end(self) -> Self {
        self.step(json!({"end": true}))
    }

    /// Waits for the results of the open requests with these names.
    pub fn wait_for(self, names: &[&str]) -> Self {
        self.step(json!({"await": names}))
    }

    pub fn delay_ms(self, delay: u64) -> Self {
        self.step(json!({"delay_ms": delay}))
    }

    /// Sends nothing more.
    pub fn stall(self) -> Self {
        self.step(json!({"stall": true}))
    }

    /// Resets the stream with an HTTP/2 error.
    pub fn reset(self, error: &str) -> Self {
        self.step(json!({"reset": error}))
    }

    pub fn expect_state(self, state: &str) -> Self {
        self.step(json!({"expect_state": state}))
    }

    pub fn build(self) -> String {
        self.0.join(", ")
    }
}

/// Returns a value as inline TOML.
pub fn inline(json: &Json) -> String {
    match json {
        Json::Object(fields) if fields.is_empty() => "{}".into(),
        Json::Object(fields) => {
            let fields = fields.iter().map(|(name, value)| {
                let is_bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                let name = if !name.is_empty() && name.chars().all(is_bare) {
                    name.clone()
                } else {
                    json!(name).to_string()
                };
                format!("{name} = {}", inline(value))
            });
            format!("{{ {} }}", fields.collect::<Vec<_>>().join(", "))
        }
        Json::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Json::Null => panic!("TOML has no null"),
        // TOML has the escapes of JSON, and wants one more.
        other => other.to_string().replace('\u{7f}', "\\u007f"),
    }
}

/// Returns a value that is written in TOML.
pub fn value(text: impl Display) -> Json {
    let mut table: Json = toml::from_str(&format!("value = {text}")).unwrap();
    table["value"].take()
}
