//! How many instructions the hot paths take. Each handles a fixed input, on one thread and in memory.
//! `make counts` accepts new counts.

use std::hint::black_box;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use agent::conversation::fingerprint::Fingerprint;
use agent::conversation::send_plan::{SendPlan, plan_send};
use agent_tools::policy::ToolPolicy;
use agent_tools::request_context::RunContext;
use agent_tools::shell::ShellSession;
use agent_tools::{ExecOutput, ExecReply, ExecRequest, ReplySender, handlers};
use cursor_proto::agent::v1::{
    AgentServerMessage, GrepArgs, InteractionUpdate, ReadArgs, TextDeltaUpdate,
    agent_server_message, interaction_update,
};
use cursor_proto::envelope::{self, Decoder, Encoding};
use cursor_sidecar::rpc::RawMessage;
use cursor_sidecar::rpc::frame::{self, FrameReader};
use cursor_sidecar::rpc::host_messages::TranscriptReader;
use prost::Message as _;
use serde_json::json;
use test_support::instruction_counts::{CountedFunction, assert_not_grown};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

const COUNTED: [CountedFunction; 8] = [
    counted("frames to the host", &["hot_paths", "write_frames"]),
    counted("frames from the host", &["hot_paths", "read_frames"]),
    counted("envelopes with text", &["hot_paths", "decode_envelopes"]),
    counted("new transcript", &["hot_paths", "read_new_transcript"]),
    counted("known transcript", &["hot_paths", "read_known_transcript"]),
    counted("plan of a send", &["hot_paths", "plan_new_messages"]),
    // Executed on threads of their own.
    counted("grep of a file", &["handlers", "search", "Worker", "file"]),
    counted("read of a file", &["handlers", "read", "read"]),
];

const fn counted(name: &'static str, path: &'static [&'static str]) -> CountedFunction {
    CountedFunction { name, path }
}

#[test]
fn hot_paths_take_no_more_instructions() {
    assert_not_grown(
        "hot_paths",
        "hot_paths::every_vector_case_is_run_once",
        &COUNTED,
    );
}

#[test]
#[ignore = "hot_paths_take_no_more_instructions runs it"]
fn every_vector_case_is_run_once() {
    let bodies: Vec<Vec<u8>> = (0..100).map(|at| vec![b'x'; 100 * (at % 40)]).collect();
    let frames = write_frames(&bodies);
    assert_eq!(read_frames(&frames), bodies.len());
    assert_eq!(decode_envelopes(&envelopes(200)), 200);
    let (reader, messages) = (TranscriptReader::default(), messages(201));
    assert_eq!(read_new_transcript(&reader, messages.clone()), 201);
    assert_eq!(read_known_transcript(&reader, messages.clone()), 201);
    assert!(plan(&messages));
    execute_tools();
}

#[inline(never)]
fn write_frames(bodies: &[Vec<u8>]) -> Vec<u8> {
    // Whether a vector that grows is copied depends on what else the test program has allocated.
    let mut out = Vec::with_capacity(bodies.iter().map(|body| body.len() + 100).sum());
    for body in bodies {
        frame::put(&mut out, body);
    }
    out
}

#[inline(never)]
fn read_frames(frames: &[u8]) -> usize {
    let (mut input, mut reader) = (BufReader::new(frames), FrameReader::default());
    std::iter::from_fn(|| reader.read(&mut input).unwrap()).count()
}

/// Text as it streams, a word at a time.
fn envelopes(count: usize) -> Vec<u8> {
    let delta = |at: usize| {
        let text = format!("word {at}");
        let delta = TextDeltaUpdate {
            text,
            ..TextDeltaUpdate::default()
        };
        let update = InteractionUpdate {
            message: Some(interaction_update::Message::TextDelta(delta)),
            ..InteractionUpdate::default()
        };
        envelope::encode_message(&AgentServerMessage {
            message: Some(agent_server_message::Message::InteractionUpdate(update)),
            ..AgentServerMessage::default()
        })
    };
    (0..count).flat_map(delta).collect()
}

#[inline(never)]
fn decode_envelopes(bytes: &[u8]) -> usize {
    let (mut decoder, mut count) = (Decoder::default(), 0);
    for piece in bytes.chunks(1000) {
        decoder.push(piece);
        while let Some(envelope) = decoder.next_envelope().unwrap() {
            let payload = envelope.into_payload(Encoding::Identity).unwrap();
            black_box(AgentServerMessage::decode(payload).unwrap());
            count += 1;
        }
    }
    count
}

/// A history with text, thinking, calls and results.
fn messages(count: usize) -> Vec<RawMessage> {
    let message = |at: usize| {
        let text = "some words of a conversation, ".repeat(10);
        RawMessage::from(&match at % 4 {
            0 => json!({"role": "user", "content": text, "timestamp": at}),
            1 => json!({"role": "assistant", "timestamp": at, "stopReason": "toolUse", "content": [
                {"type": "thinking", "thinking": text}, {"type": "text", "text": text},
                {"type": "toolCall", "id": format!("call-{at}"), "name": "look",
                 "arguments": {"path": format!("src/file-{at}.rs")}}]}),
            2 => json!({"role": "toolResult", "timestamp": at, "toolName": "look",
                "toolCallId": format!("call-{}", at - 1), "isError": false,
                "content": [{"type": "text", "text": text}]}),
            _ => json!({"role": "assistant", "timestamp": at, "stopReason": "stop",
                "content": [{"type": "text", "text": text}]}),
        })
    };
    (0..count).map(message).collect()
}

#[inline(never)]
fn read_new_transcript(reader: &TranscriptReader, messages: Vec<RawMessage>) -> usize {
    reader.read(None, None, messages).unwrap().messages.len()
}

/// The same again: only what is new is parsed.
#[inline(never)]
fn read_known_transcript(reader: &TranscriptReader, messages: Vec<RawMessage>) -> usize {
    reader.read(None, None, messages).unwrap().messages.len()
}

fn plan(messages: &[RawMessage]) -> bool {
    let reader = TranscriptReader::default();
    let transcript = reader.read(None, None, messages.to_vec()).unwrap();
    let known = &transcript.messages[..transcript.messages.len() - 1];
    let sent = Fingerprint::of("", known);
    matches!(
        plan_new_messages(&sent, &transcript.messages),
        SendPlan::Incremental { .. }
    )
}

#[inline(never)]
fn plan_new_messages<'a>(
    sent: &Fingerprint,
    messages: &'a [agent::message::Message],
) -> SendPlan<'a> {
    plan_send(Some(sent), None, &[], "", messages)
}

/// Requests for the executor of native tools, in a folder with one file.
fn execute_tools() {
    let folder = tempfile::tempdir().unwrap();
    let lines = (0..2000).map(|at| match at % 100 {
        0 => format!("line {at} with a needle\n"),
        _ => format!("line {at} of ordinary text\n"),
    });
    let path = folder.path().join("file.txt");
    std::fs::write(&path, lines.collect::<String>()).unwrap();
    let grep = ExecRequest::GrepArgs(GrepArgs {
        pattern: "needle".into(),
        ..GrepArgs::default()
    });
    let read = ExecRequest::ReadArgs(ReadArgs {
        path: "file.txt".into(),
        ..ReadArgs::default()
    });
    for request in [grep, read] {
        execute(folder.path(), request);
    }
}

fn execute(folder: &Path, request: ExecRequest) {
    let facts = RunContext {
        workspace: folder.to_owned(),
        ..RunContext::default()
    };
    let (executor, _) = handlers::executor_without_host(
        facts,
        &ToolPolicy::default(),
        &Arc::new(ShellSession::default()),
        false,
    );
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    runtime.block_on(async {
        let (queue, mut replies) = mpsc::channel(1);
        let task = executor.execute(
            request,
            ReplySender::new(1, queue),
            CancellationToken::new(),
        );
        let (done, reply) = tokio::join!(task.done, replies.recv());
        done.unwrap();
        let Some((_, ExecOutput::Reply(reply))) = reply else {
            panic!("no reply");
        };
        let text = match *reply {
            ExecReply::GrepResult(result) => format!("{result:?}"),
            ExecReply::ReadResult(result) => format!("{result:?}"),
            other => panic!("{other:?}"),
        };
        assert!(text.contains("line 1900 with a needle"));
    });
}
