//! An extension of pi with tools for tests, and calls of them.

use std::path::{Path, PathBuf};

use serde_json::{Value as Json, json};

use crate::pi_env::{PiEnv, PiVersion};
use crate::pi_rpc::{PiRpc, text};
use crate::scenario::{CONTEXT, document, inline, value};

/// Tools of another extension, and a gate that denies some.
pub const TOOLS: &str = r#"
import { existsSync, writeFileSync } from "node:fs";
const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const say = (text) => ({ content: [{ type: "text", text }], details: {} });
const done = async (signal) => {
  writeFileSync(`${process.env.HOME}/waiting`, "");
  while (!existsSync(`${process.env.HOME}/done`)) {
    if (signal?.aborted) throw new Error("given up");
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
};
const tools = {
  echo: async (_, { text }) => say(`echo ${text}`),
  fail: async () => { throw new Error("it broke"); },
  draw: async () => ({ content: [{ type: "text", text: "a dot" }, { type: "image", data: PNG, mimeType: "image/png" }], details: {} }),
  forbidden: async () => say("never"),
  wait: async (_, __, signal) => { await done(signal); return say("waited"); },
};
export default (pi) => {
  for (const [name, execute] of Object.entries(tools)) {
    const properties = { text: { oneOf: [{ type: "string" }, { type: "number" }] } };
    pi.registerTool({ name, label: name, description: `does ${name}`, parameters: { type: "object", properties }, execute });
  }
  pi.on("tool_call", ({ toolName }) => toolName === "forbidden" ? { block: true, reason: "not on a Sunday" } : undefined);
};
"#;

pub const END: &str = r#"{ checkpoint = "auto" }, { usage = {} }, { end = true }"#;

pub fn pi_env(version: PiVersion, runs: &[String]) -> (PiEnv, PathBuf) {
    let runs: Vec<String> = runs
        .iter()
        .map(|steps| format!("{CONTEXT}, {steps}"))
        .collect();
    let pi_env = PiEnv::playing(version, &document("tools", &runs));
    let tools = pi_env.home.path().join("tools.ts");
    std::fs::write(&tools, TOOLS).unwrap();
    (pi_env, tools)
}

pub fn pi(pi_env: &PiEnv, tools: &Path, more: &[&str]) -> PiRpc {
    let arguments = [
        &[
            "--model",
            "cursor/composer-2",
            "-e",
            tools.to_str().unwrap(),
        ],
        more,
    ]
    .concat();
    PiRpc::with(pi_env, &arguments)
}

/// Returns a call of a tool, with options of the step.
pub fn call(tool: &str, options: &str) -> String {
    let name = format!("pi__{tool}");
    let mut step = value(format!("{{ {options} }}"));
    step["exec"] = json!({"mcpArgs": {"name": name, "toolName": name, "providerIdentifier": "pi",
        "toolCallId": format!("call-{tool}"), "args": {"text": tool}}});
    inline(&step)
}

pub fn says(text: &str) -> String {
    let result = json!({"success": {"content": [{"text": {"text": value(text)}}]}});
    format!("expect = {}", inline(&json!({"mcpResult": result})))
}

pub fn text_of(event: &Json) -> &str {
    if event["message"]["role"] == "assistant" {
        text(&event["message"])
    } else {
        ""
    }
}
