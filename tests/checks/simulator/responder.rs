//! The built-in responder: history, tools, injections.

use cursor_sim::{Sim, VerdictOutcome};
use serde_json::{Value, json};

use super::raw_client::*;

/// What a client received in one turn.
#[derive(Debug, Default)]
struct ReceivedTurn {
    text: String,
    cards: Vec<String>,
    state: Value,
    usage: Value,
    end: Value,
}

/// Runs a client that answers execs with `exec` and stores blobs.
async fn turn(
    sim: &Sim,
    request: Value,
    blobs: &mut BlobMap,
    mut exec: impl FnMut(&Value) -> Value,
) -> ReceivedTurn {
    let token = access_token(sim).await;
    let mut connection = Http2Client::connect(sim).await;
    let mut run = connection.run(&token, request).await;
    let mut turn = ReceivedTurn::default();
    loop {
        let message = match with_timeout(run.next()).await {
            StreamEvent::Message(message) => message,
            StreamEvent::End(end) => {
                turn.end = end;
                return turn;
            }
            other => panic!("unexpected {other:?}"),
        };
        if let Some(request) = message.get("kvServerMessage") {
            run.answer_kv(request, blobs);
        } else if let Some(request) = message.get("execServerMessage") {
            let mut reply = exec(request);
            reply["id"] = request["id"].clone();
            // No streamClose, because the real service does not need it.
            run.send_message(json!({ "execClientMessage": reply }));
        } else if let Some(state) = message.get("conversationCheckpointUpdate") {
            turn.state = state.clone();
        } else if let Some(update) = message.get("interactionUpdate") {
            if let Some(text) = update["textDelta"]["text"].as_str() {
                turn.text.push_str(text);
            }
            if let Some(ended) = update.get("turnEnded") {
                turn.usage = ended.clone();
            }
            for case in ["toolCallStarted", "toolCallCompleted"] {
                if let Some(card) = update.get(case) {
                    let call = card["toolCall"].as_object().unwrap();
                    let tool = call.keys().find(|key| key.ends_with("ToolCall")).unwrap();
                    turn.cards.push(format!("{case} {tool}"));
                }
            }
        }
    }
}

fn context(_: &Value) -> Value {
    json!({ "requestContextResult": { "success": { "requestContext": {
        "env": { "workspacePaths": ["/ws"] },
    }}}})
}

fn user_request(text: &str, state: &Value) -> Value {
    let mut request = user_message(text);
    request["conversationState"] = state.clone();
    request
}

#[tokio::test]
async fn it_reads_its_history_from_blobs_and_fails_if_one_is_lost() {
    let sim = start(None).await;
    let mut blobs = BlobMap::new();
    let first = turn(
        &sim,
        user_request("my name is Ada", &json!({})),
        &mut blobs,
        context,
    )
    .await;
    assert!(first.text.contains("my name is Ada"), "{}", first.text);
    assert_eq!(first.end, json!({}));
    assert!(
        first.usage["outputTokens"]
            .as_str()
            .unwrap()
            .parse::<u32>()
            .unwrap()
            > 0
    );
    let second = turn(
        &sim,
        user_request("what did I say first?", &first.state),
        &mut blobs,
        context,
    )
    .await;
    assert_eq!(second.text, "You first said: my name is Ada");
    assert!(
        second.state["tokenDetails"]["usedTokens"].as_u64()
            > first.state["tokenDetails"]["usedTokens"].as_u64()
    );
    let resumed = turn(
        &sim,
        json!({ "conversationState": second.state, "action": { "resumeAction": {} }, "conversationId": "conversation-1" }),
        &mut blobs,
        context,
    )
    .await;
    assert!(resumed.text.starts_with("Picking up"), "{}", resumed.text);

    let summary = turn(
        &sim,
        json!({ "conversationState": second.state, "action": { "summarizeAction": {} }, "conversationId": "conversation-1" }),
        &mut blobs,
        context,
    )
    .await;
    let roots = |state: &Value| state["rootPromptMessagesJson"].as_array().unwrap().len();
    assert!(roots(&summary.state) < roots(&second.state));

    let lost = turn(
        &sim,
        user_request("and now?", &second.state),
        &mut BlobMap::new(),
        context,
    )
    .await;
    assert_eq!(
        lost.end,
        json!({ "error": { "code": "internal", "message": "Blob not found" } })
    );
    assert_eq!(
        sim.recording().verdicts().last().unwrap().outcome,
        VerdictOutcome::Failed
    );
}

#[tokio::test]
async fn it_uses_the_tools_a_message_asks_for() {
    let sim = start(None).await;
    let exec = |request: &Value| {
        if let Some(read) = request.get("readArgs") {
            assert_eq!(read["path"], "/ws/README.md");
            return json!({ "readResult": { "success": { "path": "/ws/README.md", "content": "# Demo", "totalLines": 1 } } });
        }
        if request.get("lsArgs").is_some() {
            return json!({ "lsResult": { "success": { "directoryTreeRoot": { "absPath": "/ws", "childrenFiles": [{ "name": "README.md" }] } } } });
        }
        if let Some(call) = request.get("mcpArgs") {
            assert_eq!(call["args"], json!({ "a": 2.0, "b": 3.0 }));
            return json!({ "mcpResult": { "success": { "content": [{ "text": { "text": "5" } }] } } });
        }
        if request.get("shellStreamArgs").is_some() {
            return json!({ "shellStream": { "rejected": { "command": "ls", "reason": "not today" } } });
        }
        context(request)
    };
    let mut blobs = BlobMap::new();
    let read = turn(
        &sim,
        user_request("please look around", &json!({})),
        &mut blobs,
        exec,
    )
    .await;
    assert_eq!(
        read.text,
        "Let me have a look. README.md begins like this:\n\n# Demo"
    );
    assert_eq!(
        read.cards,
        [
            "toolCallStarted lsToolCall",
            "toolCallCompleted lsToolCall",
            "toolCallStarted readToolCall",
            "toolCallCompleted readToolCall"
        ]
    );
    let shell = turn(
        &sim,
        user_request("list the files", &json!({})),
        &mut blobs,
        exec,
    )
    .await;
    assert_eq!(shell.text, "Running `ls`. I could not run `ls`: not today");
    let mut request = user_request("host_add 2 and 3", &json!({}));
    request["mcpTools"] = json!({ "mcpTools": [{
        "name": "pi-host_add", "providerIdentifier": "pi", "toolName": "host_add",
        "inputSchema": { "type": "object", "properties": { "a": { "type": "number" }, "b": { "type": "number" } }, "required": ["a", "b"] },
    }]});
    let call = turn(&sim, request, &mut blobs, exec).await;
    assert_eq!(call.text, "Calling host_add. The tool host_add answered: 5");
}

#[tokio::test]
async fn it_handles_injections_and_cancellation() {
    let sim = start(None).await;
    let token = access_token(&sim).await;
    let mut connection = Http2Client::connect(&sim).await;
    let mut run = connection.run(&token, user_message("run `sleep`")).await;
    let mut blobs = BlobMap::new();
    let mut states = Vec::new();
    let mut aborted = false;
    let mut checkpoints = 0;
    loop {
        let message = match with_timeout(run.next()).await {
            StreamEvent::Message(message) => message,
            StreamEvent::End(end) => {
                assert_eq!(end, json!({}));
                break;
            }
            other => panic!("unexpected {other:?}"),
        };
        if let Some(request) = message.get("kvServerMessage") {
            run.answer_kv(request, &mut blobs);
        } else if let Some(request) = message.get("execServerMessage") {
            if request.get("shellStreamArgs").is_some() {
                // While the command runs, the user sends a message and then cancels.
                run.send_message(json!({ "conversationAction": { "injectContextAction": {
                    "injectionId": "i1", "expectedRunId": "run-1",
                    "userContext": { "userMessage": { "text": "left" } },
                }}}));
                run.send_message(json!({ "conversationAction": { "cancelAction": {} } }));
            } else {
                let mut reply = context(request);
                reply["id"] = request["id"].clone();
                run.send_message(json!({ "execClientMessage": reply }));
            }
        } else if message.get("execServerControlMessage").is_some() {
            aborted = true;
        } else if message.get("conversationCheckpointUpdate").is_some() {
            checkpoints += 1;
        } else if let Some(change) = message["interactionUpdate"].get("contextInjectionState") {
            states.push(
                change["state"]
                    .as_object()
                    .unwrap()
                    .keys()
                    .next()
                    .unwrap()
                    .clone(),
            );
        }
    }
    assert_eq!(states, ["queued", "delivered"]);
    assert!(aborted);
    assert_eq!(checkpoints, 2);
    assert_eq!(
        verdict(&sim).await.outcome,
        VerdictOutcome::CancelledByClient
    );
}
