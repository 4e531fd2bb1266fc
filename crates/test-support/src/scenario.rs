//! Scripts for the simulator: steps, runs and simulators that play them.

use std::io::Write as _;

use crate::simulator::{Simulator, Transport};

/// A simulator that plays `steps` at every run.
pub fn playing(transport: Transport, steps: &str) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    write!(file, "name = \"fault\"\n[[run]]\nsteps = [ {steps} ]\n").unwrap();
    Simulator::with(transport, file.path())
}

/// A scenario with one script per run.
pub fn script(runs: &[&str]) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    writeln!(file, "name = \"script\"").unwrap();
    for steps in runs {
        writeln!(file, "[[run]]\nsteps = [ {steps} ]").unwrap();
    }
    Simulator::with(Transport::H2c, file.path())
}

/// A scenario of several runs.
pub fn runs(steps: &[String]) -> Simulator {
    let mut file = tempfile::Builder::new().suffix(".toml").tempfile().unwrap();
    let mut text = String::from("name = \"settings\"\n");
    for steps in steps {
        text.push_str(&format!("[[run]]\nsteps = [ {steps}, {END} ]\n"));
    }
    file.write_all(text.as_bytes()).unwrap();
    Simulator::with(Transport::H2c, file.path())
}

pub const CONTEXT: &str = "{ exec = { requestContextArgs = {} } }";

pub const END: &str = r#"{ usage = { inputTokens = 100, outputTokens = 5, cacheReadTokens = 0, cacheWriteTokens = 0 } }, { checkpoint = "auto" }, { end = true }"#;

/// An exec request that calls `pi__<name>` and expects `expect` as its result.
pub fn calls(name: &str, args: &str, options: &str, expect: &str) -> String {
    format!(
        r#"{{ exec = {{ mcpArgs = {{ name = "pi__{name}", providerIdentifier = "pi", toolName = "pi__{name}", toolCallId = "call-{name}", args = {args} }} }}, {options} expect = {{ mcpResult = {expect} }} }}"#
    )
}

pub fn text(text: &str) -> String {
    format!(r#"{{ success = {{ content = [ {{ text = {{ text = "{text}" }} }} ] }} }}"#)
}

/// A call of a tool of an MCP server.
pub fn call(server: &str, tool: &str, args: &str, expect: &str) -> String {
    format!(
        r#"{{ exec = {{ mcpArgs = {{ name = "{server}-{tool}", providerIdentifier = "{server}", toolName = "{tool}", toolCallId = "c", args = {args} }} }}, expect = {{ mcpResult = {expect} }} }}"#
    )
}

pub fn said(text: &str) -> String {
    format!(r#"{{ success = {{ content = [ {{ text = {{ text = '{text}' }} }} ] }} }}"#)
}

/// An exec request of a native tool and its expected result.
pub fn exec(args: &str, expect: &str) -> String {
    format!("{{ exec = {args}, expect = {expect} }}")
}
