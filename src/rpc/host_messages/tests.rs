use super::*;
use crate::rpc::protocol::{
    AssistantBlock, AssistantContent, CalledFunction, FunctionCall, HostMessage, HostTool,
    ImageSource, ImageUrl, TextBlock, TextContent, ToolName, UserBlock, UserContent,
};
use agent::conversation::fingerprint::{Divergence, Fingerprint};

/// Reads a transcript twice. The second time, most messages are not parsed, which makes no
/// difference.
fn transcript(
    system: Option<String>,
    tools: Option<Vec<Tool>>,
    messages: &[Json],
) -> Result<Transcript, MessageError> {
    let reader = TranscriptReader::default();
    let read = || {
        let messages = messages.iter().map(RawMessage::from).collect();
        reader.read(system.clone(), tools.clone(), messages)
    };
    let (parsed, again) = (read(), read());
    if let (Ok(parsed), Ok(again)) = (&parsed, &again) {
        let fingerprint = |read: &Transcript| Fingerprint::of(&read.system, &read.messages);
        assert_eq!(fingerprint(again), fingerprint(parsed));
        let outline = |message: &Message| {
            let tokens = message.text_tokens();
            let id = message.result_id().map(str::to_owned);
            (message.is_excluded(), message.has_images(), tokens, id)
        };
        let outlines = |read: &Transcript| Vec::from_iter(read.messages.iter().map(outline));
        assert_eq!(outlines(again), outlines(parsed));
    }
    assert_eq!(again, parsed);
    again
}

fn read(messages: Json) -> Result<Transcript, MessageError> {
    transcript(None, None, messages.as_array().unwrap())
}

fn messages(messages: Json) -> Vec<Message> {
    read(messages).unwrap().messages
}

fn names(transcript: &Transcript) -> Vec<&str> {
    transcript.tools.iter().map(|t| t.name.as_str()).collect()
}

fn image() -> Content {
    Content::Image {
        data: "AAAA".into(),
        mime_type: "image/png".into(),
    }
}

#[test]
fn a_separate_prompt_is_used_unchanged() {
    let tool = Tool {
        name: "a".into(),
        description: String::new(),
        parameters: json!({}),
    };
    let user = [json!({"role": "user", "content": "hi"})];
    let read = transcript(Some("S".into()), Some(vec![tool]), &user).unwrap();
    assert_eq!((read.system.as_str(), names(&read)), ("S", vec!["a"]));
    assert_eq!(read.messages.len(), 1);
}

#[test]
fn system_messages_are_applied_in_order() {
    let read = read(json!([
        {"role": "system", "content": "Base.", "sections": {"tools": "T1", "cwd": "C", "docs": "D"},
         "toolsAdded": [{"name": "a", "description": "first", "parameters": {"type": "object"}},
                        {"name": "b", "parameters": {}}]},
        {"role": "user", "content": "hi"},
        {"role": "system", "content": "", "sections": {"tools": "T2", "docs": null},
         "toolsRemoved": [{"name": "b"}],
         "toolsAdded": [{"name": "a", "description": "second", "parameters": {}}, {"name": "c", "parameters": {}}]},
        {"role": "system", "content": "More."},
    ]))
    .unwrap();
    assert_eq!(read.system, "Base.\n\nMore.\n\nT2\n\nC");
    assert_eq!(names(&read), ["a", "c"]);
    assert_eq!(read.tools[0].description, "second");
    assert_eq!(read.messages.len(), 1);
}

/// A test for defect 15 of `docs/recovery-tests.md`, which other clients have.
#[test]
fn a_developers_message_is_one_of_the_system() {
    let developer = [json!({"role": "developer", "content": [{"type": "text", "text": "D"}]})];
    let read = transcript(Some("S".into()), None, &developer).unwrap();
    assert_eq!((read.system.as_str(), read.messages.len()), ("S\n\nD", 0));
}

#[test]
fn an_unknown_shape_is_an_error_with_its_path() {
    let user = |content: Json| json!({"role": "user", "content": content});
    let answer = |content: Json| json!({"role": "assistant", "content": content});
    let cases = [
        (json!(null), "messages[1]"),
        (json!({"content": "x"}), "messages[1].role"),
        (json!({"role": "robot"}), "messages[1].role"),
        (json!({"role": "user"}), "messages[1].content"),
        (user(json!(7)), "messages[1].content"),
        (user(json!(["x"])), "messages[1].content[0]"),
        (
            user(json!([{"type": "text", "text": "a"}, {"type": "audio"}])),
            "messages[1].content[1].type",
        ),
        (
            user(json!([{"type": "text"}])),
            "messages[1].content[0].text",
        ),
        (
            user(json!([{"type": "image", "source": {"type": "url"}}])),
            "messages[1].content[0].source.type",
        ),
        (
            user(json!([{"type": "image_url", "image_url": {"url": "http://a"}}])),
            "messages[1].content[0].image_url.url",
        ),
        (
            user(json!([{"type": "tool_result", "content": "x"}])),
            "messages[1].content[0].tool_use_id",
        ),
        (
            answer(json!([{"type": "server_tool_use"}])),
            "messages[1].content[0].type",
        ),
        (
            answer(json!([{"type": "toolCall", "name": "t"}])),
            "messages[1].content[0].id",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{"id": "c"}]}),
            "messages[1].tool_calls[0].function",
        ),
        (
            json!({"role": "toolResult", "content": "x"}),
            "messages[1].toolCallId",
        ),
        (
            json!({"role": "toolResult", "toolCallId": "c", "isError": "no"}),
            "messages[1].isError",
        ),
        (
            json!({"role": "tool", "content": "x"}),
            "messages[1].tool_call_id",
        ),
        (
            json!({"role": "system", "content": 7}),
            "messages[1].content",
        ),
        (
            json!({"role": "system", "sections": [1]}),
            "messages[1].sections",
        ),
        (
            json!({"role": "system", "sections": {"a": 1}}),
            "messages[1].sections.a",
        ),
        (
            json!({"role": "system", "toolsAdded": [{"nope": 1}]}),
            "messages[1].toolsAdded[0].name",
        ),
        (
            json!({"role": "system", "toolsRemoved": "y"}),
            "messages[1].toolsRemoved",
        ),
    ];
    for (message, path) in cases {
        let error = read(json!([user(json!("a")), message])).unwrap_err();
        assert_eq!(error.path, path, "{message}: {error}");
    }
    let error = read(json!([user(json!([{"type": "audio"}]))])).unwrap_err();
    insta::assert_snapshot!(error, @r#"messages[0].content[0].type: "audio" is none of text, image, image_url, tool_result"#);
}

/// One conversation in three spellings.
#[test]
fn tool_calls_and_results_of_other_apis_are_the_same_as_pis() {
    let pi = messages(json!([
        {"role": "assistant", "stopReason": "toolUse", "content": [{"type": "text", "text": "see"},
            {"type": "toolCall", "id": "c", "name": "look", "arguments": {"q": 1}}]},
        {"role": "toolResult", "toolCallId": "c", "toolName": "look", "isError": false,
            "content": [{"type": "text", "text": "42"},
                        {"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        {"role": "user", "content": "go on"},
    ]));
    let openai = messages(json!([
        {"role": "assistant", "content": "see", "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{\"q\":1}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "42"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}]},
        {"role": "user", "content": "go on"},
    ]));
    let anthropic = messages(json!([
        {"role": "assistant", "content": [{"type": "text", "text": "see"},
            {"type": "tool_use", "id": "c", "name": "look", "input": {"q": 1}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "42"},
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}]},
            {"type": "text", "text": "go on"}]},
    ]));
    let kinds = |messages: &[Message]| -> Vec<MessageKind> {
        messages.iter().map(|m| m.kind().clone()).collect()
    };
    assert_eq!(kinds(&openai), kinds(&pi));
    assert_eq!(kinds(&anthropic), kinds(&pi));
    let result = pi[1].as_tool_result().unwrap();
    assert_eq!(result.content, [Content::Text("42".into()), image()]);
    assert!(!pi[0].as_answer().unwrap().is_complete);
    let only_result = messages(json!([{"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "c", "content": "no", "is_error": true}]}]));
    assert_eq!(only_result.len(), 1);
    assert!(only_result[0].as_tool_result().unwrap().is_error);
}

#[test]
fn what_a_tool_returns_is_never_an_error() {
    let result = |content: Json| {
        let read = messages(json!([{"role": "toolResult", "toolCallId": "c", "content": content}]));
        read[0].as_tool_result().unwrap().content.clone()
    };
    let text = |text: &str| Content::Text(text.into());
    assert_eq!(result(json!(null)), []);
    assert_eq!(result(json!("a")), [text("a")]);
    assert_eq!(
        result(json!(["a", {"x": 1}])),
        [text("a"), text(r#"{"x":1}"#)]
    );
    assert_eq!(result(json!({"x": 1})), [text(r#"{"x":1}"#)]);
}

#[test]
fn custom_roles_of_pi_are_read() {
    let read = messages(json!([
        {"role": "bashExecution", "command": "ls", "output": "a", "exitCode": 0},
        {"role": "bashExecution", "command": "ls", "output": "a", "excludeFromContext": true},
        {"role": "custom", "customType": "note", "content": [{"type": "text", "text": "n"}]},
        {"role": "branchSummary", "summary": "b", "fromId": "1"},
        {"role": "compactionSummary", "summary": "c", "tokensBefore": 9},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}], "stopReason": "error"},
    ]));
    let command = MessageKind::Command {
        command: "ls".into(),
        output: "a".into(),
    };
    assert_eq!((read[0].kind(), read[1].kind()), (&command, &command));
    assert_eq!(
        (read[0].is_excluded(), read[1].is_excluded()),
        (false, true)
    );
    assert_eq!(
        *read[2].kind(),
        MessageKind::Custom(vec![Content::Text("n".into())])
    );
    let summary = |text: &str, of| MessageKind::Summary {
        text: text.into(),
        of,
    };
    assert_eq!(*read[3].kind(), summary("b", Summarized::Branch));
    assert_eq!(*read[4].kind(), summary("c", Summarized::Beginning));
    let answer = read[5].as_answer().unwrap();
    assert_eq!(answer.parts, [AnswerPart::Thinking("hm".into())]);
    assert!(!answer.is_complete);
}

fn continuity(before: &Json, after: &Json) -> Result<usize, Divergence> {
    let [before, after] = [before, after].map(|message| messages(json!([message])));
    let sent = Fingerprint::of("S", &before);
    Fingerprint::of("S", &after).continuity(Some(&sent), &after)
}

#[test]
fn content_changes_the_fingerprint() {
    let with = |thought: &str, picture: &str, kind: &str| {
        json!({"role": "assistant", "timestamp": 1, "content": [
            {"type": "thinking", "thinking": thought},
            {"type": "image", "data": picture, "mimeType": kind},
            {"type": "text", "text": "a"}]})
    };
    let summary = |tokens: u64| json!({"role": "compactionSummary", "summary": "s", "timestamp": 1, "tokensBefore": tokens});
    let bash = |exit: Json| json!({"role": "bashExecution", "command": "c", "output": "o", "exitCode": exit, "timestamp": 1});
    let user = |at: Json| json!({"role": "user", "content": "a", "timestamp": at});
    let base = with("x", "AAAA", "image/png");
    for (before, after) in [
        (&base, with("x", "BBBB", "image/png")),
        (&base, with("x", "AAAA", "image/gif")),
        (&summary(9), summary(10)),
        (&bash(json!(0)), bash(json!(1))),
        (&user(json!("a")), user(json!("b"))),
    ] {
        let rewritten = Err(Divergence::Rewritten);
        assert_eq!(continuity(before, &after), rewritten, "{before} {after}");
    }
}

#[test]
fn thinking_does_not_change_the_fingerprint() {
    let with = |blocks: Json| json!({"role": "assistant", "timestamp": 1, "content": blocks});
    let thinking =
        with(json!([{"type": "thinking", "thinking": "x"}, {"type": "text", "text": "a"}]));
    let bare = with(json!([{"type": "text", "text": "a"}]));
    assert_eq!(continuity(&thinking, &bare), Ok(1));
}

#[test]
fn absent_flags_equal_false_and_other_fields_are_ignored() {
    let result = |more: Json| {
        let mut message = json!({"role": "toolResult", "content": [], "toolCallId": "c", "toolName": "t", "timestamp": 1});
        message
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        message
    };
    let bash = |more: Json| {
        let mut message = result(more);
        message["role"] = "bashExecution".into();
        message["command"] = "ls".into();
        message
    };
    for (before, after) in [
        (
            result(json!({})),
            result(json!({"isError": false, "details": {"x": 1}})),
        ),
        (
            bash(json!({})),
            bash(json!({"cancelled": false, "exitCode": null, "truncated": true})),
        ),
    ] {
        let got = continuity(&before, &after);
        assert_eq!(got, Ok(1), "{before} {after}");
    }
}

/// Computed by the version that hashed pi's JSON in the engine. A different hash would make every
/// stored conversation start over.
#[test]
fn fingerprints_of_existing_journals_still_match() {
    let messages = messages(json!([
        {"role": "user", "content": "hi", "timestamp": 1},
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "x"},
            {"text": "a", "type": "text", "textSignature": "s"},
            {"type": "toolCall", "id": "c", "name": "t", "arguments": {"b": 1, "a": 2}}],
            "stopReason": "toolUse", "timestamp": 2},
        {"role": "toolResult", "toolCallId": "c", "toolName": "t", "isError": true, "timestamp": 3,
            "content": [{"type": "image", "data": "AAAA", "mimeType": "image/png"}]},
        {"role": "bashExecution", "command": "ls", "output": "o", "exitCode": 0, "timestamp": 4},
        {"role": "bashExecution", "command": "ls", "output": "o", "excludeFromContext": true, "timestamp": 5},
        {"role": "custom", "customType": "n", "content": "x"},
        {"role": "branchSummary", "summary": "s", "fromId": "f"},
        {"role": "compactionSummary", "summary": "s", "tokensBefore": 9},
    ]));
    let before = r#"{"systemHash":"8de0b3c47f112c59","messageHashes":["2fbea3644d8e6aa3","7eb959a78a825967","ae2519d428a8f6c1","ff52f6c3272401a9","48071539d9058a86","e0495b6aa55d6d26","b433405a34503365","8d4d41eb689e3747"]}"#;
    assert_eq!(
        Fingerprint::parse(before),
        Some(Fingerprint::of("S", &messages))
    );
}

/// The documented type is what the parser accepts.
#[test]
fn every_documented_shape_is_accepted() {
    let text = || UserContent::Text("a".into());
    let block = || UserBlock::Text { text: "a".into() };
    let call = FunctionCall {
        id: "c".into(),
        function: CalledFunction {
            name: "t".into(),
            arguments: "{}".into(),
        },
    };
    let documented = [
        HostMessage::System {
            content: Some(TextContent::Blocks(vec![TextBlock::Text {
                text: "a".into(),
            }])),
            sections: Some([("a".into(), None)].into()),
            tools_added: Some(vec![HostTool {
                name: "t".into(),
                description: String::new(),
                parameters: json!({}),
            }]),
            tools_removed: Some(vec![ToolName { name: "u".into() }]),
        },
        HostMessage::Developer {
            content: TextContent::Text("a".into()),
        },
        HostMessage::User {
            content: UserContent::Blocks(vec![
                block(),
                UserBlock::Image {
                    data: Some("AAAA".into()),
                    mime_type: None,
                    source: None,
                },
                UserBlock::Image {
                    data: None,
                    mime_type: None,
                    source: Some(ImageSource::Base64 {
                        media_type: "image/png".into(),
                        data: "AAAA".into(),
                    }),
                },
                UserBlock::ImageUrl {
                    image_url: ImageUrl {
                        url: "data:image/png;base64,AAAA".into(),
                    },
                },
                UserBlock::ToolResult {
                    tool_use_id: "c".into(),
                    content: Some(text()),
                    is_error: Some(false),
                },
            ]),
            timestamp: Some(1.0),
        },
        HostMessage::Assistant {
            content: Some(AssistantContent::Blocks(vec![
                AssistantBlock::Text { text: "a".into() },
                AssistantBlock::Refusal {
                    refusal: "a".into(),
                },
                AssistantBlock::Thinking {
                    thinking: "a".into(),
                },
                AssistantBlock::RedactedThinking,
                AssistantBlock::ToolCall {
                    id: "c".into(),
                    name: "t".into(),
                    arguments: json!({}),
                },
                AssistantBlock::ToolUse {
                    id: "d".into(),
                    name: "t".into(),
                    input: json!({}),
                },
                AssistantBlock::Image,
            ])),
            tool_calls: Some(vec![call]),
            stop_reason: Some("toolUse".into()),
            timestamp: None,
        },
        HostMessage::Assistant {
            content: Some(AssistantContent::Text("a".into())),
            tool_calls: None,
            stop_reason: None,
            timestamp: None,
        },
        HostMessage::ToolResult {
            tool_call_id: "c".into(),
            tool_name: Some("t".into()),
            content: UserContent::Blocks(vec![block()]),
            is_error: Some(true),
            timestamp: None,
        },
        HostMessage::Tool {
            tool_call_id: "c".into(),
            content: text(),
        },
        HostMessage::BashExecution {
            command: "ls".into(),
            output: Some("a".into()),
            exclude_from_context: Some(true),
        },
        HostMessage::Custom { content: text() },
        HostMessage::BranchSummary {
            summary: "a".into(),
        },
        HostMessage::CompactionSummary {
            summary: "a".into(),
        },
    ];
    let read = read(serde_json::to_value(documented).unwrap()).unwrap();
    assert_eq!(read.messages.len(), 10, "with one result of its own");
    assert_eq!(names(&read), ["t"]);
}

#[test]
fn only_new_messages_are_parsed() {
    let reader = TranscriptReader::default();
    let read = |messages: &Json| {
        let messages = messages.as_array().unwrap().iter();
        let messages = messages.map(RawMessage::from).collect();
        reader.read(None, None, messages).unwrap().messages
    };
    let parsed = |messages: &[Message]| {
        let parsed = messages.iter().map(|message| !message.is_unparsed());
        Vec::from_iter(parsed)
    };
    let mut history = json!([
        {"role": "user", "content": "look", "timestamp": 1},
        {"role": "assistant", "timestamp": 2,
            "content": [{"type": "toolCall", "id": "a", "name": "see", "arguments": {}}]},
        {"role": "toolResult", "toolCallId": "a", "toolName": "see", "content": "x", "timestamp": 3},
        {"role": "user", "content": "and?"},
    ]);
    let first = read(&history);
    assert_eq!(parsed(&first), [true; 4]);
    let sent = Fingerprint::of("S", &first);
    let same = read(&history);
    assert_eq!(Fingerprint::of("S", &same), sent);
    assert_eq!(parsed(&same), [false; 4]);
    // A change of an old message is found, and nothing else is parsed.
    history[0]["content"] = "look again".into();
    let edited = read(&history);
    assert_eq!(
        Fingerprint::of("S", &edited).continuity(Some(&sent), &edited),
        Err(Divergence::Rewritten)
    );
    assert_eq!(parsed(&edited), [true, false, false, false]);
    // A message without a time is another one at another place.
    let moved = read(&json!([history[3]]));
    assert_ne!(moved[0].hash(0), same[3].hash(3));
}

/// A result that does not name its tool has the name of the call before it, which is not always
/// the same.
#[test]
fn a_result_is_read_with_its_own_call() {
    let reader = TranscriptReader::default();
    for tool in ["see", "hear", "see"] {
        let call = json!({"role": "assistant", "timestamp": 1,
            "content": [{"type": "toolCall", "id": "a", "name": tool, "arguments": {}}]});
        let result =
            json!({"role": "toolResult", "toolCallId": "a", "content": "x", "timestamp": 2});
        let messages = [&call, &result].map(RawMessage::from).to_vec();
        let read = reader.read(None, None, messages).unwrap();
        let result = read.messages[1].as_tool_result().unwrap();
        assert_eq!(result.tool, tool);
    }
}
