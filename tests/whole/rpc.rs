//! The JSON-RPC door through the real binary and real pipes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value as Json, json};

use crate::backend::binary;

struct Host {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
}

impl Host {
    fn start(env: &[(&str, &str)]) -> Self {
        let mut child = Command::new(binary())
            .env_clear()
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).unwrap();
        stdin.flush().unwrap();
    }

    fn say(&mut self, message: &Json) {
        let body = message.to_string();
        self.write(format!("Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes());
    }

    fn hear(&mut self) -> Json {
        let mut length = 0;
        loop {
            let mut line = String::new();
            assert_ne!(
                self.stdout.read_line(&mut line).unwrap(),
                0,
                "the sidecar is gone"
            );
            match line.trim().strip_prefix("Content-Length: ") {
                Some(number) => length = number.parse().unwrap(),
                None if line.trim().is_empty() => break,
                None => panic!("not a header: {line}"),
            }
        }
        let mut body = vec![0; length];
        self.stdout.read_exact(&mut body).unwrap();
        serde_json::from_slice(&body).unwrap()
    }

    fn call(&mut self, method: &str, params: Json) -> Json {
        self.say(&json!({"jsonrpc": "2.0", "id": "q", "method": method, "params": params}));
        self.hear()
    }

    fn initialize(&mut self) -> Json {
        self.call(
            "initialize",
            json!({"protocolVersion": 1, "host": {"name": "test", "mode": "print"}}),
        )
    }

    /// The exit code, which must come soon.
    fn exits(mut self) -> Option<i32> {
        let (sender, receiver) = mpsc::channel();
        let id = self.child.id();
        let mut child = self.child;
        drop(self.stdin.take());
        std::thread::spawn(move || sender.send(child.wait()).unwrap());
        let status = receiver
            .recv_timeout(Duration::from_secs(1))
            .unwrap_or_else(|_| panic!("process {id} does not end"));
        status.unwrap().code()
    }
}

#[test]
fn a_session_from_initialize_to_exit() {
    let mut host = Host::start(&[]);
    let early = host.call("diagnostics/report", json!({}));
    assert_eq!(early["error"]["code"], -32002);
    let answer = host.initialize();
    assert_eq!(answer["result"]["name"], "cursor-sidecar");
    assert_eq!(answer["result"]["protocolVersion"], 1);
    assert_eq!(host.call("shutdown", json!({}))["result"], Json::Null);
    host.say(&json!({"jsonrpc": "2.0", "method": "exit"}));
    assert_eq!(host.exits(), Some(0));
}

#[test]
fn bad_messages_are_told_and_survived() {
    let mut host = Host::start(&[]);
    host.write(b"what?\n");
    assert_eq!(host.hear()["error"]["code"], -32700);
    host.write(b"Content-Length: 1\r\n\r\n{");
    assert_eq!(host.hear()["error"]["code"], -32700);
    let wrong = host.call(
        "initialize",
        json!({"protocolVersion": "1", "host": {"name": "x"}}),
    );
    assert_eq!(wrong["error"]["code"], -32602);
    insta::assert_snapshot!(wrong["error"]["message"].as_str().unwrap(), @r#"protocolVersion: invalid type: string "1", expected u32"#);
    let missing = host.call("initialize", json!({"protocolVersion": 1, "host": {}}));
    insta::assert_snapshot!(missing["error"]["message"].as_str().unwrap(), @"host: missing field `name`");
    let other = host.call(
        "initialize",
        json!({"protocolVersion": 9, "host": {"name": "x"}}),
    );
    insta::assert_snapshot!(other["error"]["message"].as_str().unwrap(), @"protocolVersion: this sidecar speaks version 1, the host 9; install matching versions");
    assert_eq!(host.initialize()["result"]["name"], "cursor-sidecar");
    let unknown = host.call("turn/strat", json!({}));
    assert_eq!(unknown["error"]["code"], -32601);
}

#[test]
fn the_report_tells_settings_and_no_secrets() {
    let env = [
        ("CURSOR_API_KEY", "crsr_0123456789"),
        ("HTTPS_PROXY", "http://user:pa55word@127.0.0.1:1"),
        ("PI_CURSOR_HTTP", "9"),
        ("PI_CURSOR_HTPP", "1"),
    ];
    let mut host = Host::start(&env);
    host.initialize();
    let report = host.call("diagnostics/report", json!({}));
    let text = report.to_string();
    assert!(
        !text.contains("0123456789") && !text.contains("pa55word"),
        "{text}"
    );
    let result = &report["result"];
    assert_eq!(result["endpoint"], "https://agentn.us.api5.cursor.sh");
    let warnings = result["warnings"].as_array().unwrap();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    let key = result["settings"]
        .as_array()
        .unwrap()
        .iter()
        .find(|s| s["name"] == "CURSOR_API_KEY");
    assert_eq!(key.unwrap()["value"], "(set)");
    assert_eq!(key.unwrap()["source"], "environment");
}

#[test]
fn it_ends_with_its_input() {
    let mut host = Host::start(&[]);
    host.initialize();
    assert_eq!(host.exits(), Some(1));
}

/// The host dies, but somebody else keeps the pipe open.
#[test]
fn it_ends_with_its_host() {
    let mut pretended_host = Command::new("sleep").arg("1000").spawn().unwrap();
    let mut host = Host::start(&[]);
    let answer = host.call(
        "initialize",
        json!({"protocolVersion": 1, "host": {"name": "test", "processId": pretended_host.id()}}),
    );
    assert!(answer.get("result").is_some(), "{answer}");
    pretended_host.kill().unwrap();
    pretended_host.wait().unwrap();
    let kept_open = host.stdin.take();
    assert_eq!(host.exits(), Some(1));
    drop(kept_open);
}

#[test]
fn the_schema_is_printed() {
    let output = Command::new(binary()).arg("schema").output().unwrap();
    let schema: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert!(schema["methods"]["initialize"]["params"]["properties"]["host"].is_object());
}
