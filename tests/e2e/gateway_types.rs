//! Every body and event of the gateway against the types of the official libraries, by TypeScript's
//! strict compiler: `tests/clients/types/wire.ts` names the types and what we add to them.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::Command;

use serde_json::{Value as Json, json};

use test_support::api_client::{ApiClient, ApiReply};
use test_support::gateway::GatewayProcess;
use test_support::official_client::OfficialClient;
use test_support::root;
use test_support::scenario::{END, Steps, calls, playing, text};
use test_support::simulator::{Simulator, Transport};

/// An API: its path, and the names of its types in `wire.ts`.
struct Api {
    path: &'static str,
    body: &'static str,
    event: &'static str,
    error: &'static str,
}

const CHAT: Api = Api {
    path: "/v1/chat/completions",
    body: "Chat",
    event: "ChatEvent",
    error: "OpenAiError",
};
const RESPONSES: Api = Api {
    path: "/v1/responses",
    body: "ResponseBody",
    event: "ResponseEvent",
    error: "OpenAiError",
};
const MESSAGES: Api = Api {
    path: "/v1/messages",
    body: "MessageBody",
    event: "MessageEvent",
    error: "AnthropicError",
};
const APIS: [&Api; 3] = [&CHAT, &RESPONSES, &MESSAGES];

impl Api {
    /// Returns a request with a tool, and for responses tools of each kind.
    fn request(&self, stream: bool) -> Json {
        let schema = json!({"type": "object", "properties": {"q": {"type": "string"}}});
        let message = json!([{"role": "user", "content": "go"}]);
        match self.body {
            "Chat" => json!({"model": "composer-2", "messages": message, "stream": stream,
                "stream_options": {"include_usage": true},
                "tools": [{"type": "function",
                           "function": {"name": "look", "parameters": schema}}]}),
            "ResponseBody" => json!({"model": "composer-2", "input": message, "stream": stream,
            "metadata": {"a": "b"}, "instructions": "Be brief.", "max_output_tokens": 100_000,
            "tools": [
                {"type": "function", "name": "look", "parameters": schema, "strict": false},
                {"type": "custom", "name": "patch", "description": "Patches."},
                {"type": "namespace", "name": "docs", "description": "d", "tools": [
                    {"type": "function", "name": "find", "parameters": schema,
                     "strict": false}]},
            ]}),
            _ => json!({"model": "composer-2", "messages": message, "stream": stream,
                "max_tokens": 100_000, "thinking": {"type": "enabled", "budget_tokens": 2000},
                "tools": [{"name": "look", "input_schema": schema}]}),
        }
    }

    fn limit(&self) -> &'static str {
        match self.body {
            "Chat" => "max_completion_tokens",
            "ResponseBody" => "max_output_tokens",
            _ => "max_tokens",
        }
    }
}

/// What the gateway sent, by the name of its type.
#[derive(Default)]
struct SentSamples(BTreeMap<&'static str, Vec<Json>>);

impl SentSamples {
    fn add(&mut self, kind: &'static str, value: &Json) {
        self.0.entry(kind).or_default().push(value.clone());
    }

    /// Adds a response, and checks the order of its events.
    fn reply(&mut self, api: &Api, reply: &ApiReply) {
        if reply.status != 200 {
            return self.add(api.error, &reply.body);
        }
        if reply.events.is_empty() {
            return self.add(api.body, &reply.body);
        }
        check_order(api, reply);
        for (_, event) in &reply.events {
            self.add(api.event, event);
        }
    }

    /// Returns the values of a field of the recorded values.
    fn values(&self, kind: &str, pointer: &str) -> BTreeSet<String> {
        let values = self.0[kind].iter();
        let values = values.filter_map(|value| value.pointer(pointer)?.as_str());
        values.map(str::to_owned).collect()
    }

    /// Compiles everything. Of each type, an empty object and one with a further field must be
    /// refused, so that no type accepts anything.
    fn compile(&self) {
        let folder = tempfile::tempdir().unwrap();
        let types = root().join("tests/clients/types");
        let config = json!({
            "extends": types.join("tsconfig.json"),
            "compilerOptions": {"paths": {"wire": [types.join("wire.ts")]}},
            "files": ["sent.ts"],
        });
        let mut code = String::from("import type * as wire from \"wire\";\n");
        for (kind, values) in &self.0 {
            let mut more = values[0].clone();
            more["field_of_ours"] = json!(1);
            for wrong in [json!({}), more] {
                let line = format!("// @ts-expect-error\n({wrong}) satisfies wire.{kind};\n");
                code.push_str(&line);
            }
            for value in values {
                writeln!(code, "({value}) satisfies wire.{kind};").unwrap();
            }
        }
        std::fs::write(folder.path().join("tsconfig.json"), config.to_string()).unwrap();
        std::fs::write(folder.path().join("sent.ts"), &code).unwrap();
        let compiler = root().join("tests/clients/node_modules/.bin/tsc");
        assert!(
            compiler.exists(),
            "the clients are not installed: run `make test`, or `npm ci` in tests/clients"
        );
        let node = OfficialClient::new().command("").get_program().to_owned();
        let output = Command::new(node)
            .arg(compiler)
            .args(["--pretty", "false", "-p"])
            .arg(folder.path())
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stdout);
        let line = |error: &str| {
            let number: usize = error
                .strip_prefix("sent.ts(")?
                .split(',')
                .next()?
                .parse()
                .ok()?;
            code.lines().nth(number - 1)
        };
        let explained = errors.lines().map(|error| {
            let sent = line(error).map(|line| format!("\n    {line}"));
            format!("{error}{}", sent.unwrap_or_default())
        });
        let explained: Vec<String> = explained.collect();
        assert!(output.status.success(), "{}", explained.join("\n"));
    }
}

/// Checks that the events of a response come in the order of the official APIs.
fn check_order(api: &Api, reply: &ApiReply) {
    let mut state = "start";
    for (_, event) in &reply.events {
        let name = match event["type"].as_str() {
            Some(name) => name,
            None if event == "[DONE]" => "done",
            None if event.get("error").is_some() => "error",
            None if event["choices"] == json!([]) => "usage",
            None if !event["choices"][0]["finish_reason"].is_null() => "finish",
            None => "chunk",
        };
        let item = event["item"]["type"].as_str().unwrap_or_default();
        let block = event["content_block"]["type"].as_str().unwrap_or_default();
        let delta = event["delta"]["type"].as_str().unwrap_or_default();
        state = match (state, name) {
            // Chat completions.
            ("start" | "chunk", "chunk") => "chunk",
            ("chunk", "finish") => "finish",
            ("finish", "usage") => "usage",
            ("usage" | "error", "done") => "end",
            ("chunk", "error") if api.body == "Chat" => "error",
            // Responses.
            ("start", "response.created") => "created",
            ("created", "response.in_progress") => "between",
            ("between", "response.output_item.added") => match item {
                "reasoning" => "reasoning",
                "message" => "message",
                "function_call" => "call",
                "custom_tool_call" => "custom call",
                _ => "unknown",
            },
            ("reasoning", "response.reasoning_summary_part.added") => "summary",
            ("summary", "response.reasoning_summary_text.delta") => "summary",
            ("summary", "response.reasoning_summary_text.done") => "summary text",
            ("summary text", "response.reasoning_summary_part.done") => "complete",
            ("message", "response.content_part.added") => "part",
            ("part", "response.output_text.delta") => "part",
            ("part", "response.output_text.done") => "part text",
            ("part text", "response.content_part.done") => "complete",
            ("call", "response.function_call_arguments.delta") => "call",
            ("call", "response.function_call_arguments.done") => "complete",
            ("custom call", "response.custom_tool_call_input.delta") => "custom call",
            ("custom call", "response.custom_tool_call_input.done") => "complete",
            ("complete", "response.output_item.done") => "between",
            ("between", "response.completed" | "response.incomplete") => "end",
            (_, "response.failed") => "end",
            // Messages.
            ("start", "message_start") => "blocks",
            ("blocks", "content_block_start") => match block {
                "text" => "text",
                "thinking" => "thinking",
                "tool_use" => "tool",
                _ => "unknown",
            },
            ("text", "content_block_delta") if delta == "text_delta" => "text",
            ("thinking", "content_block_delta") if delta == "thinking_delta" => "thinking",
            ("thinking", "content_block_delta") if delta == "signature_delta" => "text",
            ("tool", "content_block_delta") if delta == "input_json_delta" => "tool",
            ("text" | "tool", "content_block_stop") => "blocks",
            ("blocks", "message_delta") => "delta",
            ("delta", "message_stop") => "end",
            (same, "ping") if api.body == "MessageBody" && same != "start" => same,
            ("blocks" | "text" | "thinking" | "tool", "error") => "end",
            (state, name) => panic!("{name} after {state}: {reply:?}"),
        };
    }
    assert_eq!(state, "end", "{reply:?}");
}

fn failing(first: &str, error: &str, code: &str) -> String {
    let end = json!({"code": code, "message": "Error", "error": error, "title": "T",
                     "detail": "D.", "retryable": false});
    let steps = Steps::new();
    let steps = if first.is_empty() {
        steps
    } else {
        steps.text(first)
    };
    steps.step(json!({ "end": end })).build()
}

/// Answers with thinking, text, and calls of a function and, for responses, of the other kinds.
fn answer(api: &Api) -> String {
    let steps = Steps::new()
        .step(json!({"thinking": "Hm."}))
        .step(json!({"thinking_done": 10}))
        .text("Let me ")
        .text("look. ");
    let tools: &[(&str, &str)] = if api.body == "ResponseBody" {
        &[("look", "q"), ("patch", "input"), ("docs__find", "q")]
    } else {
        &[("look", "q")]
    };
    let steps = tools.iter().fold(steps, |steps, (tool, field)| {
        steps.then(calls(
            tool,
            &format!(r#"{{ {field} = "it" }}"#),
            "",
            &text("42"),
        ))
    });
    steps.text("Done.").then(END).build()
}

/// Returns the next request of a client: with its calls and their results, each of its kind.
fn with_results(api: &Api, request: &Json, answer: &Json) -> Json {
    let mut next = request.clone();
    let list = if api.body == "ResponseBody" {
        "input"
    } else {
        "messages"
    };
    let history = next[list].as_array_mut().unwrap();
    match api.body {
        "Chat" => {
            let message = &answer["choices"][0]["message"];
            history.push(message.clone());
            for call in message["tool_calls"].as_array().unwrap() {
                let id = &call["id"];
                history.push(json!({"role": "tool", "tool_call_id": id, "content": "42"}));
            }
        }
        "ResponseBody" => {
            let output = answer["output"].as_array().unwrap();
            history.extend(output.iter().cloned());
            for item in output {
                let kind = match item["type"].as_str().unwrap() {
                    "function_call" => "function_call_output",
                    "custom_tool_call" => "custom_tool_call_output",
                    _ => continue,
                };
                let id = &item["call_id"];
                history.push(json!({"type": kind, "call_id": id, "output": "42"}));
            }
        }
        _ => {
            let content = &answer["content"];
            history.push(json!({"role": "assistant", "content": content}));
            let blocks = content.as_array().unwrap().iter();
            let calls = blocks.filter(|block| block["type"] == "tool_use");
            let results = calls.map(
                |call| json!({"type": "tool_result", "tool_use_id": call["id"], "content": "42"}),
            );
            let results: Vec<Json> = results.collect();
            history.push(json!({"role": "user", "content": results}));
        }
    }
    next
}

/// Asks until the answer is complete: whole, and for responses also in streams.
async fn converse(recorded: &mut SentSamples, api: &Api) {
    for stream in [false, true] {
        let simulator = playing(Transport::H2c, &answer(api));
        let gateway = GatewayProcess::start(&simulator, &[]);
        let client = ApiClient::new(&gateway);
        let mut request = api.request(stream);
        loop {
            let reply = client.post(api.path, &request).await;
            recorded.reply(api, &reply);
            let answer = match reply.last() {
                Json::Null => &reply.body,
                last => &last["response"],
            };
            if !answer.to_string().contains("__call_") {
                break;
            }
            request = with_results(api, &request, answer);
        }
    }
}

/// Answers that end at a limit or a stop sequence, or by themselves.
async fn cut_answers(recorded: &mut SentSamples) {
    let steps = Steps::new().text("One two END three.").then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    for api in APIS {
        for (stream, limit) in [(false, 1), (true, 1), (true, 1000)] {
            let mut request = api.request(stream);
            request[api.limit()] = json!(limit);
            recorded.reply(api, &client.post(api.path, &request).await);
        }
    }
    for (api, field) in [(&CHAT, "stop"), (&MESSAGES, "stop_sequences")] {
        for stream in [false, true] {
            let mut request = api.request(stream);
            request[field] = json!(["END"]);
            recorded.reply(api, &client.post(api.path, &request).await);
        }
    }
}

/// Answers in JSON; a response repeats the form that was asked for.
async fn json_answers(recorded: &mut SentSamples) {
    let steps = Steps::new().text(r#"{"n":1}"#).then(END).build();
    let simulator = playing(Transport::H2c, &steps);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    let schema = json!({"type": "object", "required": ["n"]});
    for (api, field, format) in [
        (&CHAT, "response_format", json!({"type": "json_object"})),
        (
            &RESPONSES,
            "text",
            json!({"format": {"type": "json_schema", "name": "n", "schema": schema}}),
        ),
        (
            &MESSAGES,
            "output_config",
            json!({"format": {"type": "json_schema", "schema": schema}}),
        ),
    ] {
        for stream in [false, true] {
            let mut request = api.request(stream);
            request[field] = format.clone();
            let reply = client.post(api.path, &request).await;
            assert_eq!(reply.status, 200, "{reply:?}");
            recorded.reply(api, &reply);
            if field == "text" && !stream {
                assert_eq!(reply.body["text"], format);
            }
        }
    }
}

/// Errors of Cursor's, before the first output and after it.
async fn cursors_errors(recorded: &mut SentSamples) {
    let errors = [
        ("ERROR_CONVERSATION_TOO_LONG", "invalid_argument"),
        ("ERROR_RATE_LIMITED", "resource_exhausted"),
        ("ERROR_NOT_LOGGED_IN", "unauthenticated"),
    ];
    for (error, code) in errors {
        for first in ["", "Half. "] {
            let simulator = playing(Transport::H2c, &failing(first, error, code));
            let gateway = GatewayProcess::start(&simulator, &[]);
            let client = ApiClient::new(&gateway);
            for api in APIS {
                recorded.reply(api, &client.post(api.path, &api.request(true)).await);
            }
        }
    }
}

/// Errors of our own.
async fn our_errors(recorded: &mut SentSamples, gateway: &GatewayProcess) {
    let client = ApiClient::new(gateway);
    for api in APIS {
        let mut unknown = api.request(true);
        unknown["model"] = json!("composer-3");
        let evil = [("origin", "https://evil.com")];
        let wrong = [("x-api-key", "wrong")];
        let body = api.request(false);
        let replies = [
            client.post(api.path, &json!([])).await,
            client.post(api.path, &unknown).await,
            client.post_with(api.path, &evil, &body).await,
            client.post_with(api.path, &wrong, &body).await,
            client.post(&format!("{}/batches", api.path), &body).await,
            client.get(api.path).await,
        ];
        let statuses: Vec<u16> = replies.iter().map(|reply| reply.status).collect();
        assert_eq!(statuses, [400, 404, 403, 401, 404, 405], "{}", api.path);
        for reply in replies {
            recorded.reply(api, &reply);
        }
        let too_long = gateway.raw(&format!(
            "POST {} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nx-api-key: {}\r\nConnection: close\r\nContent-Length: 33554433\r\n\r\n",
            api.path,
            gateway.port(),
            gateway.token,
        ));
        let (head, body) = too_long.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
        recorded.add(api.error, &serde_json::from_str(body).unwrap());
    }
    let mut gone = RESPONSES.request(true);
    gone["previous_response_id"] = json!("resp_gone");
    let reply = client.post(RESPONSES.path, &gone).await;
    assert_eq!(reply.status, 400);
    recorded.reply(&RESPONSES, &reply);
}

#[tokio::test]
async fn everything_sent_has_the_official_types_in_the_official_order() {
    let mut recorded = SentSamples::default();
    for api in APIS {
        converse(&mut recorded, api).await;
    }
    cut_answers(&mut recorded).await;
    json_answers(&mut recorded).await;
    cursors_errors(&mut recorded).await;
    let simulator = Simulator::responder(Transport::H2c);
    let gateway = GatewayProcess::start(&simulator, &[]);
    let client = ApiClient::new(&gateway);
    our_errors(&mut recorded, &gateway).await;
    recorded.add("Models", &client.get("/v1/models").await.body);
    recorded.add("Model", &client.get("/v1/models/composer-2").await.body);
    let asked = MESSAGES.request(false);
    let count = client.post("/v1/messages/count_tokens", &asked).await;
    recorded.add("TokenCount", &count.body);
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let events: [(&str, &str, BTreeSet<String>); 4] = [
        (
            "ChatEvent",
            "/choices/0/finish_reason",
            names(&["length", "stop", "tool_calls"]),
        ),
        (
            "ResponseEvent",
            "/type",
            names(&[
                "response.completed",
                "response.content_part.added",
                "response.content_part.done",
                "response.created",
                "response.custom_tool_call_input.delta",
                "response.custom_tool_call_input.done",
                "response.failed",
                "response.function_call_arguments.delta",
                "response.function_call_arguments.done",
                "response.in_progress",
                "response.incomplete",
                "response.output_item.added",
                "response.output_item.done",
                "response.output_text.delta",
                "response.output_text.done",
                "response.reasoning_summary_part.added",
                "response.reasoning_summary_part.done",
                "response.reasoning_summary_text.delta",
                "response.reasoning_summary_text.done",
            ]),
        ),
        (
            "MessageEvent",
            "/type",
            names(&[
                "content_block_delta",
                "content_block_start",
                "content_block_stop",
                "error",
                "message_delta",
                "message_start",
                "message_stop",
                "ping",
            ]),
        ),
        (
            "MessageEvent",
            "/delta/stop_reason",
            names(&["end_turn", "max_tokens", "stop_sequence", "tool_use"]),
        ),
    ];
    for (kind, pointer, wanted) in events {
        let sent = recorded.values(kind, pointer);
        assert!(wanted.is_subset(&sent), "{kind} {pointer}: {sent:?}");
    }
    recorded.compile();
}
