//! Activity of native tools, shown through the real binary: as cards, whose results are always
//! recorded ones, or as lines of text.

use serde_json::{Value as Json, json};

use test_support::root;
use test_support::scenario::{END, Steps, document, playing};
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::wait::until;

const WRAPPERS: [&str; 8] = [
    "read", "bash", "edit", "write", "grep", "find", "ls", "cursor",
];

/// A host like pi with one session.
struct Pi {
    host: SidecarProcess,
    messages: Vec<Json>,
    turns: u64,
    workspace: String,
    surface: &'static str,
    wrappers: Vec<&'static str>,
}

/// One turn as it was shown.
struct Turn {
    text: String,
    thinking: String,
    calls: Vec<Json>,
    stop: String,
}

impl Pi {
    fn new(simulator: &Simulator, surface: &'static str) -> Self {
        let mut host = SidecarProcess::start(&[
            ("CURSOR_BACKEND_URL", &simulator.url),
            ("CURSOR_API_KEY", "crsr_test"),
        ]);
        host.call(
            "initialize",
            json!({
                "protocolVersion": 1,
                "nativeTools": {"default": "local"},
                "host": {"name": "test", "mode": "interactive"},
            }),
        );
        Self {
            host,
            messages: Vec::new(),
            turns: 0,
            workspace: "/workspace".into(),
            surface,
            wrappers: WRAPPERS.into(),
        }
    }

    fn says(&mut self, text: &str) -> Turn {
        let at = self.messages.len();
        self.messages
            .push(json!({"role": "user", "content": text, "timestamp": at}));
        self.turn()
    }

    fn turn(&mut self) -> Turn {
        self.turns += 1;
        let params = json!({"turnId": format!("t{}", self.turns), "sessionId": "s",
            "workspace": self.workspace, "messages": self.messages, "surface": self.surface,
            "cardTools": self.wrappers,
            "tools": [{"name": "weather", "description": "w", "parameters": {"type": "object"}},
                      {"name": "cursor", "description": "shows", "parameters": {"type": "object"}}],
            "model": {"id": "composer-2", "contextWindow": 200_000, "maxTokens": 64_000}});
        self.host
            .send(&json!({"jsonrpc": "2.0", "id": 7, "method": "turn/start", "params": params}));
        let mut turn = Turn {
            text: String::new(),
            thinking: String::new(),
            calls: Vec::new(),
            stop: String::new(),
        };
        loop {
            let message = self.host.receive();
            if message["id"] == 7 {
                turn.stop = message["result"]["stopReason"].as_str().unwrap().to_owned();
                break;
            }
            for event in message["params"]["events"].as_array().unwrap() {
                let text = event["text"].as_str().unwrap_or_default();
                match event["type"].as_str().unwrap() {
                    "text" => turn.text.push_str(text),
                    "thinking" => turn.thinking.push_str(text),
                    "toolCall" => turn.calls.push(event.clone()),
                    _ => {}
                }
            }
        }
        let mut content = vec![json!({"type": "text", "text": turn.text})];
        for call in &turn.calls {
            content.push(
                json!({"type": "toolCall", "id": call["id"], "name": call["name"],
                                "arguments": call["arguments"]}),
            );
        }
        let at = self.messages.len();
        self.messages
            .push(json!({"role": "assistant", "content": content, "timestamp": at}));
        turn
    }

    /// Takes a turn and, while it shows cards, the turns after it; returns the number of cards.
    fn shows(&mut self, text: &str) -> usize {
        let mut turn = self.says(text);
        let mut cards = 0;
        while turn.stop == "toolUse" {
            cards += turn.calls.len();
            self.executes(&turn.calls);
            turn = self.turn();
        }
        assert_eq!(turn.stop, "stop");
        cards
    }

    fn recorded(&mut self, id: &Json) -> Json {
        self.host
            .call("replay/result", json!({"sessionId": "s", "callId": id}))
    }

    /// Does what the wrappers of the shim do; returns the recorded result of each call.
    fn executes(&mut self, calls: &[Json]) -> Vec<Json> {
        let mut results = Vec::new();
        for call in calls {
            let id = call["id"].as_str().unwrap();
            let result = if id.starts_with("cursor-replay-") {
                self.recorded(&call["id"])["result"].clone()
            } else {
                json!({"content": [{"type": "text", "text": "sunny"}], "isError": false})
            };
            let at = self.messages.len();
            self.messages.push(
                json!({"role": "toolResult", "toolCallId": id, "toolName": call["name"],
                "content": result["content"], "isError": result["isError"], "timestamp": at}),
            );
            results.push(result);
        }
        results
    }
}

fn text(result: &Json) -> &str {
    result["content"][0]["text"].as_str().unwrap()
}

#[test]
fn every_kind_of_activity_is_a_card_with_a_recorded_result() {
    let simulator = Simulator::start(Transport::Http1);
    let mut pi = Pi::new(&simulator, "cards");
    let mut turn = pi.says("@replay go");
    let (mut shown, mut thinking, mut all_text) = (Vec::new(), String::new(), String::new());
    while turn.stop == "toolUse" {
        let results = pi.executes(&turn.calls);
        shown.extend(turn.calls.iter().cloned().zip(results));
        thinking.push_str(&turn.thinking);
        all_text.push_str(&turn.text);
        turn = pi.turn();
    }
    assert_eq!(turn.stop, "stop");
    all_text.push_str(&turn.text);
    thinking.push_str(&turn.thinking);
    // The run also ends with the plan.
    assert_eq!(all_text, "Looking. Done.\n\n# The plan\n1. go");
    assert!(
        thinking.contains("Cursor task: Explore the repo\n"),
        "{thinking}"
    );
    assert!(
        thinking.contains("Cursor summary: so far so good\n"),
        "{thinking}"
    );
    assert!(
        !thinking.contains("Cursor shell"),
        "the card displays the output: {thinking}"
    );
    let table: Vec<String> = shown
        .iter()
        .map(|(call, result)| {
            let arguments = &call["arguments"];
            let about = match call["name"].as_str().unwrap() {
                "cursor" => format!(
                    "{} | {}",
                    arguments["activityTitle"], arguments["activitySummary"]
                ),
                _ => arguments.to_string(),
            };
            let mark = if result["isError"] == true { "!" } else { "" };
            format!(
                "{}{mark} {about} -> {:?}",
                call["name"].as_str().unwrap(),
                text(result)
            )
        })
        .collect();
    insta::assert_snapshot!(table.join("\n"), @r##"
    read {"path":"src/a.rs"} -> "fn main() {}\n"
    cursor "Cursor shell" | "make" -> "building"
    cursor! "Cursor shell" | "false" -> "no\n\nCommand exited with code 1"
    grep {"pattern":"main","path":"src","ignoreCase":true} -> "src/a.rs:1: fn main() {}"
    find {"pattern":"*.zig"} -> "No files found matching pattern"
    ls {"path":"."} -> "README.md\nsrc/\nsrc/a.rs"
    cursor "Cursor edit" | "src/a.rs" -> "edit src/a.rs\n\n+1 -1\n\n--- a/src/a.rs\n+++ b/src/a.rs\n@@ -1,2 +1,2 @@\n-old\n+new\n same"
    cursor "Cursor edit" | "src/a.rs" -> "edit src/a.rs\n\n@@ -1 +1 @@\n-old\n+new\n"
    cursor "Cursor write" | "new.md" -> "write new.md\n\nCreated 1 lines\n\nFile size: 5 bytes\n\n# Hi"
    cursor! "Cursor delete" | "old" -> "delete old\n\nError: file not found"
    cursor "Cursor diagnostics" | "1 diagnostic in src/a.rs" -> "readLints src/a.rs\n\nsrc/a.rs: error rustc: boom"
    cursor "Cursor todos" | "1/2 completed, 1 in progress" -> "updateTodos\n\n✓ A (completed)\n… B (inProgress)"
    cursor "Cursor image generation" | "dog.png" -> "generateImage a dog\n\nSaved image: dog.png"
    cursor "Cursor MCP" | "echo · echo: hi" -> "echo\n\necho: hi"
    cursor "Cursor semantic search" | "where is main (1 dir)" -> "semSearch where is main\n\nScope: src\n\nsrc/a.rs"
    cursor "Cursor web search" | "rust" -> "web search rust\n\nRust\nhttps://rust.example\nA language"
    cursor "Cursor web fetch" | "https://rust.example" -> "web fetch https://rust.example\n\npage"
    cursor "Cursor screen recording" | "v.mp4 · 1m 1s" -> "recordScreen save recording\n\nRecording: v.mp4\nDuration: 1m 1s"
    cursor "Cursor subagent" | "Explore the repo · Explore" -> "subagent Explore the repo\n\nread src/a.rs\nAll good"
    cursor "Cursor switchMode" | "targetModeId=plan" -> "switchMode\n\ntargetModeId=plan\n\n{ \"fromModeId\": \"agent\", \"toModeId\": \"plan\" }\n"
    cursor "Cursor plan" | "# The plan" -> "createPlan\n\n# The plan\n1. go"
    "##);
    let edits: Vec<&Json> = shown
        .iter()
        .filter(|(call, _)| call["arguments"]["activityTitle"] == "Cursor edit")
        .filter_map(|(_, result)| result["details"].get("diff"))
        .collect();
    assert_eq!(
        edits,
        [&json!("-1 old\n+1 new\n 2 same"), &json!("-1 old\n+1 new")]
    );
    let ids: std::collections::BTreeSet<&str> = shown
        .iter()
        .map(|(call, _)| call["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids.len(), shown.len());
    // The run is over: its results are gone, and no second run was started.
    let gone = pi.recorded(&shown[0].0["id"]);
    assert!(
        gone["error"]["message"]
            .as_str()
            .unwrap()
            .contains("no recorded Cursor result")
    );
    let recording = simulator.recorded();
    assert_eq!(recording.runs(), 1);
    recording.assert_played(&["completed"]);
}

#[test]
#[cfg(target_os = "linux")]
fn no_card_accesses_a_file_or_starts_a_process() {
    use test_support::folder_watch::FolderWatch;
    use test_support::processes::started;

    let folder = tempfile::tempdir().unwrap();
    let workspace = folder.path().join("workspace");
    std::fs::create_dir_all(workspace.join("src")).unwrap();
    for name in ["src/a.rs", "README.md", "old", "new.md"] {
        std::fs::write(workspace.join(name), "as it is\n").unwrap();
    }
    let here = workspace.to_str().unwrap();
    let replay = std::fs::read_to_string(root().join("tests/scenarios/replay.toml")).unwrap();
    let (_, cards) = replay.split_once("[[run]]").unwrap();
    // Files that every turn reads are read in the first run; the tools that really execute are in
    // the last.
    let first = Steps::new().context().then(END).build();
    let last = Steps::new()
        .step(json!({"exec": {"readArgs": {"path": "$WS/src/a.rs", "toolCallId": "r"}}}))
        .step(json!({"exec": {"shellStreamArgs": {"command": "true", "workingDirectory": "$WS", "toolCallId": "s"}}}))
        .then(END)
        .build();
    let cards = cards.replace("/workspace", here);
    let scenario =
        document("audit", &[first]) + &format!("[[run]]{cards}\n[[run]]\nsteps = [ {last} ]\n");
    let path = folder.path().join("audit.toml");
    std::fs::write(&path, scenario).unwrap();
    let simulator = Simulator::with(Transport::Http1, &path);
    let mut pi = Pi::new(&simulator, "cards");
    pi.workspace = here.into();
    assert_eq!(pi.shows("hello"), 0);

    let watch = FolderWatch::below(&workspace);
    watch.seen();
    let before = started(pi.host.id());
    assert_eq!(pi.shows("go"), 21);
    assert_eq!(watch.seen(), [""; 0]);
    assert_eq!(started(pi.host.id()), before);

    pi.shows("now really");
    let seen = watch.seen();
    assert!(seen.iter().any(|seen| seen.contains("a.rs")), "{seen:?}");
    assert_ne!(started(pi.host.id()), before);
}

/// Cursor's report of a command may have no output; the card shows what was captured here, the end
/// of it if it is long, and names a private file with all of it.
#[test]
fn a_card_of_a_command_shows_what_was_captured() {
    use std::os::unix::fs::PermissionsExt as _;
    let run = |id: &str, command: &str, result: &Json| {
        let args = json!({"command": command, "toolCallId": id});
        let exec = json!({"command": command, "toolCallId": id, "timeout": 60000});
        let call = json!({"shellToolCall": {"args": args, "result": result}});
        let update =
            |kind: &str, call: &Json| json!({"update": {kind: {"callId": id, "toolCall": call}}});
        Steps::new()
            .step(update(
                "toolCallStarted",
                &json!({"shellToolCall": {"args": args}}),
            ))
            .step(json!({"exec": {"shellStreamArgs": exec}}))
            .step(update("toolCallCompleted", &call))
            .build()
    };
    let nothing = json!({"success": {"command": "c"}});
    let some = json!({"success": {"command": "c", "stdout": "1\n2\n3\n"}});
    let steps = Steps::new()
        .then(run("short", "echo out; echo err >&2; exit 3", &nothing))
        .then(run("long", "seq 1 300000", &some))
        .text("ok")
        .then(END)
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut pi = Pi::new(&simulator, "cards");
    let folder = tempfile::tempdir().unwrap();
    pi.workspace = folder.path().to_str().unwrap().into();
    let mut turn = pi.says("go");
    let mut results = Vec::new();
    while turn.stop == "toolUse" {
        results.extend(pi.executes(&turn.calls));
        turn = pi.turn();
    }
    let [short, long] = &results[..] else {
        panic!("{results:?}");
    };
    assert!(
        text(short).contains("out") && text(short).contains("err"),
        "{short}"
    );
    assert!(text(short).ends_with("Command exited with code 3") && short["isError"] == true);
    assert!(
        text(long).contains("\n299999\n300000\n\n[Showing lines "),
        "{long}"
    );
    assert!(
        !text(long).contains("\n1000\n"),
        "the beginning is left out"
    );
    let file = long["details"]["fullOutputPath"].as_str().unwrap();
    assert!(text(long).contains(file));
    let all = std::fs::read_to_string(file).unwrap();
    assert!(all.starts_with("1\n2\n") && all.ends_with("\n300000\n"));
    let mode = std::fs::metadata(file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_follow_up_after_cards_resumes_from_the_checkpoint() {
    let read = |id: &str| {
        Steps::new()
            .step(json!({
                "update": {
                    "toolCallCompleted": {
                        "callId": id.to_string(),
                        "toolCall": {
                            "readToolCall": {
                                "args": {"path": id.to_string()},
                                "result": {"success": {"content": "c"}},
                            },
                        },
                    },
                },
            }))
            .build()
    };
    let steps = Steps::new()
        .then(read("a"))
        .text("ok")
        .usage()
        .checkpoint()
        .end()
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut pi = Pi::new(&simulator, "cards");
    let turn = pi.says("one");
    pi.executes(&turn.calls);
    assert_eq!(pi.turn().text, "ok");
    let turn = pi.says("two");
    assert_eq!(turn.stop, "toolUse");
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    let message = &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(
        message["text"], "two",
        "Cursor knows its own tools' results"
    );
    assert_eq!(
        requests[0]["runRequest"]["conversationId"],
        requests[1]["runRequest"]["conversationId"]
    );
}

#[test]
fn cards_that_wait_together_are_shown_together_and_text_separates_them() {
    let card = |id: &str| {
        Steps::new()
            .step(json!({
                "update": {
                    "toolCallCompleted": {
                        "callId": id.to_string(),
                        "toolCall": {
                            "readToolCall": {
                                "args": {"path": id.to_string()},
                                "result": {"success": {"content": "c"}},
                            },
                        },
                    },
                },
            }))
            .build()
    };
    // The reply to the exec request shows that everything before it has arrived.
    let steps = Steps::new()
        .then(card("a"))
        .text("between")
        .then(card("b"))
        .then(card("c"))
        .text("then")
        .then(card("d"))
        .context()
        .usage()
        .end()
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut pi = Pi::new(&simulator, "cards");
    let first = pi.says("go");
    let path = |call: &Json| call["arguments"]["path"].as_str().unwrap().to_owned();
    assert_eq!(first.calls.iter().map(path).collect::<Vec<_>>(), ["a"]);
    let context = "execClientMessage.requestContextResult";
    while simulator.recorded().client(context).is_empty() {}
    pi.executes(&first.calls);
    let second = pi.turn();
    assert_eq!(second.text, "between");
    assert_eq!(
        second.calls.iter().map(path).collect::<Vec<_>>(),
        ["b", "c"]
    );
    assert_eq!(pi.executes(&second.calls)[0]["terminate"], false);
    let third = pi.turn();
    assert_eq!(
        (third.text.as_str(), third.stop.as_str()),
        ("then", "toolUse")
    );
    assert_eq!(third.calls.iter().map(path).collect::<Vec<_>>(), ["d"]);
    pi.executes(&third.calls);
    let last = pi.turn();
    assert_eq!((last.text.as_str(), last.stop.as_str()), ("", "stop"));
}

/// Nothing follows the last card, so the host need not start another turn.
#[test]
fn the_last_card_of_a_run_ends_the_hosts_turn() {
    let card = |id: &str| {
        Steps::new()
            .step(json!({
                "update": {
                    "toolCallCompleted": {
                        "callId": id.to_string(),
                        "toolCall": {
                            "readToolCall": {
                                "args": {"path": id.to_string()},
                                "result": {"success": {"content": "c"}},
                            },
                        },
                    },
                },
            }))
            .build()
    };
    let steps = Steps::new()
        .step(json!({"together": true}))
        .then(card("a"))
        .then(card("b"))
        .usage()
        .end()
        .build();
    let simulator = playing(Transport::Http1, &steps);
    let mut pi = Pi::new(&simulator, "cards");
    let only = pi.says("go");
    assert_eq!((only.stop.as_str(), only.calls.len()), ("toolUse", 2));
    for result in pi.executes(&only.calls) {
        assert_eq!(result["terminate"], true, "{result}");
    }
}

#[test]
fn cards_and_calls_of_the_host_never_share_a_turn() {
    let steps = r#"
        { update = { toolCallCompleted = { callId = "a", toolCall = { readToolCall = { args = { path = "a" }, result = { success = { content = "c" } } } } } } },
        { exec = { mcpArgs = { name = "pi__weather", toolName = "pi__weather", providerIdentifier = "pi", toolCallId = "w", args = { city = "Bonn" } } }, expect = { mcpResult = { success = { content = [ { text = { text = "sunny" } } ] } } } },
        { update = { toolCallCompleted = { callId = "w", toolCall = { mcpToolCall = { args = { name = "pi__weather", toolName = "pi__weather", providerIdentifier = "pi" }, result = { success = { content = [ { text = { text = "sunny" } } ] } } } } } } },
        { update = { toolCallCompleted = { callId = "b", toolCall = { readToolCall = { args = { path = "b" }, result = { success = { content = "c" } } } } } } },
        { text = "nice" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::Http1, steps);
    let mut pi = Pi::new(&simulator, "cards");
    let mut turn = pi.says("go");
    let mut turns = Vec::new();
    while turn.stop == "toolUse" {
        pi.executes(&turn.calls);
        let names = turn
            .calls
            .iter()
            .map(|call| call["name"].as_str().unwrap().to_owned());
        turns.push(names.collect::<Vec<_>>());
        turn = pi.turn();
    }
    assert_eq!(turns, [["read"], ["weather"], ["read"]]);
    assert_eq!(turn.text, "nice");
    simulator.recorded().assert_played(&["completed"]);
}

#[test]
fn text_after_the_last_card_of_a_run_is_shown_in_the_next_turn() {
    let steps = r#"
        { update = { toolCallCompleted = { callId = "a", toolCall = { readToolCall = { args = { path = "a" }, result = { success = { content = "c" } } } } } } },
        { exec = { requestContextArgs = {} } },
        { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::Http1, steps);
    let mut pi = Pi::new(&simulator, "cards");
    let turn = pi.says("one");
    assert_eq!(turn.stop, "toolUse");
    pi.executes(&turn.calls);
    // The host may stop here; the user continues.
    let turn = pi.says("two");
    assert_eq!(turn.stop, "toolUse", "the second run shows its own card");
    let recording = simulator.recorded();
    let requests = recording.client("runRequest");
    assert_eq!(requests.len(), 2);
    let message = &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["text"], "two");
}

/// The message is injected into a run that has nothing left to send: the next run resumes its
/// checkpoint, and nothing the checkpoint includes is sent again.
#[test]
fn text_after_a_runs_last_checkpoint_keeps_the_conversation() {
    let steps = r#"
        { update = { toolCallCompleted = { callId = "a", toolCall = { readToolCall = { args = { path = "a" }, result = { success = { content = "c" } } } } } } },
        { checkpoint = "auto" },
        { exec = { requestContextArgs = {} } },
        { expect_client = { conversationAction = { injectContextAction = {} } } },
        { usage = {} }, { end = true } ]
        [[run]]
        steps = [ { expect_state = "last checkpoint" }, { text = "heard" }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
    let simulator = playing(Transport::Http1, steps);
    let mut pi = Pi::new(&simulator, "cards");
    let turn = pi.says("one");
    pi.executes(&turn.calls);
    // A client that answers a request sent after the checkpoint has received the checkpoint.
    until(|| {
        let answers = "execClientMessage.requestContextResult";
        (!simulator.recorded().client(answers).is_empty()).then_some(())
    });
    let turn = pi.says("two");
    assert_eq!((turn.text.as_str(), turn.stop.as_str()), ("heard", "stop"));
    let recording = simulator.recorded();
    recording.assert_played(&["completed", "completed"]);
    let requests = recording.client("runRequest");
    let message = &requests[1]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    assert_eq!(message["text"], "two");
}

#[test]
fn without_cards_the_activity_is_text_and_the_turn_continues() {
    let simulator = Simulator::start(Transport::Http1);
    let mut pi = Pi::new(&simulator, "text");
    let turn = pi.says("@replay go");
    assert_eq!(turn.stop, "stop");
    assert!(turn.calls.is_empty());
    assert_eq!(turn.text, "Looking. Done.\n\n# The plan\n1. go");
    for line in [
        "read src/a.rs\n\nfn main() {}\n",
        "$ make\n\nbuilding\n\nTook 0.9s\n",
        "delete old\n\nError: file not found",
        "subagent Explore the repo\n\nread src/a.rs\nAll good\n",
    ] {
        assert!(
            turn.thinking.contains(line),
            "{line:?} in {}",
            turn.thinking
        );
    }
    assert_eq!(
        turn.thinking.matches("read src/a.rs\n\n").count(),
        1,
        "reported twice, shown once"
    );
    assert!(
        !turn.thinking.contains("never"),
        "a call that never completed is no activity"
    );
}

#[test]
fn wrappers_of_other_users_are_not_used() {
    let simulator = Simulator::start(Transport::Http1);
    let mut pi = Pi::new(&simulator, "cards");
    pi.wrappers = vec!["cursor"];
    let turn = pi.says("@replay go");
    assert!(turn.thinking.contains("read src/a.rs"));
    assert!(
        turn.calls.iter().all(|call| call["name"] == "cursor"),
        "{:?}",
        turn.calls
    );
    assert_eq!(turn.stop, "toolUse");
}

#[test]
fn an_unknown_card_has_no_result() {
    let simulator = Simulator::start(Transport::Http1);
    let mut pi = Pi::new(&simulator, "cards");
    let answer = pi.recorded(&json!("cursor-replay-1-1-tool-1"));
    let problem = answer["error"]["message"].as_str().unwrap();
    assert!(problem.contains("not executed again"), "{problem}");
    assert_eq!(simulator.recorded().runs(), 0);
}
