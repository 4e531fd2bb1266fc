//! Sessions of pi and conversations with Cursor.

use serde_json::json;

use test_support::pi_env::{ECHO, PiEnv, PiVersion, conversation, rules, user_text};
use test_support::pi_rpc::{PiRpc, text};

crate::on_every_pi!(
    a_follow_up_carries_one_message_and_the_checkpoint,
    a_new_session_is_a_new_conversation,
    a_summary_is_made_beside_the_session,
    a_tool_of_pi_is_offered_called_and_answered_in_one_run,
    a_resumed_session_continues_from_the_checkpoint,
    another_model_and_another_thinking_level_keep_the_conversation,
    a_picture_reaches_cursor_once,
);

/// A first turn, then turns that must resume from the last checkpoint.
pub const FOLLOWED: &str = r#"
name = "followed"
[[run]]
steps = [
  { exec = { requestContextArgs = {} } },
  { thinking = "Hm." },
  { thinking_done = 10 },
  { text = "First answer." },
  { checkpoint = "auto" },
  { usage = { inputTokens = 100, outputTokens = 10, cacheReadTokens = 0, cacheWriteTokens = 0 } },
  { checkpoint = "auto" },
  { end = true },
]
[[run]]
steps = [
  { expect_state = "last checkpoint" },
  { text = "Follow-up to: $USER_TEXT" },
  { checkpoint = "auto" },
  { usage = { inputTokens = 200, outputTokens = 10, cacheReadTokens = 0, cacheWriteTokens = 0 } },
  { checkpoint = "auto" },
  { end = true },
]
"#;

fn a_follow_up_carries_one_message_and_the_checkpoint(version: PiVersion) {
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let mut pi = PiRpc::start(&pi_env);
    let first = pi.prompt("one");
    assert_eq!(first["content"][0]["thinking"], "Hm.");
    assert_eq!(text(&first), "First answer.");
    assert_eq!(text(&pi.prompt("two")), "Follow-up to: two");
    assert_eq!(text(&pi.prompt("three")), "Follow-up to: three");
    pi.quit();
    pi_env.no_sidecar_is_left();
    assert_eq!(pi_env.sidecars().len(), 1, "one sidecar served all of it");
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"; 3]);
    let requests = recording.client("runRequest");
    let texts: Vec<_> = requests.iter().map(|request| user_text(request)).collect();
    assert_eq!(texts, ["one", "two", "three"]);
    let id = conversation(requests[0]);
    assert!(requests.iter().all(|request| conversation(request) == id));
}

fn a_new_session_is_a_new_conversation(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("same words");
    pi.ask(json!({"type": "new_session"}));
    pi.prompt("same words");
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"; 2]);
    let requests = recording.client("runRequest");
    assert_ne!(conversation(requests[0]), conversation(requests[1]));
    assert_eq!(pi_env.sidecars().len(), 1);
}

fn a_summary_is_made_beside_the_session(version: PiVersion) {
    let pi_env = PiEnv::playing(version, ECHO);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("tell me about okapis");
    pi.prompt("and about zebras");
    pi.ask(json!({"type": "compact"}));
    pi.settle();
    pi.prompt("go on");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    let summaries: Vec<_> = requests
        .iter()
        .filter(|request| user_text(request).contains("<conversation>"))
        .collect();
    assert!(!summaries.is_empty(), "pi asked for a summary");
    let session = conversation(requests[0]);
    assert_eq!(conversation(requests[1]), session);
    for summary in &summaries {
        assert_ne!(conversation(summary), session, "a summary is beside it");
    }
    let last = requests.last().unwrap();
    assert_eq!(user_text(last), "go on");
    assert_ne!(conversation(last), session, "history was rewritten");
    let known = &last["runRequest"]["conversationState"]["rootPromptMessagesJson"];
    assert!(!known.as_array().unwrap().is_empty(), "and is sent again");
    let rules = rules(&recording);
    assert!(rules[2].contains("summarization"), "{}", rules[2]);
    assert!(!rules.last().unwrap().contains("summarization"));
}

/// pi and the sidecar exit; new ones resume the same conversation.
fn a_resumed_session_continues_from_the_checkpoint(version: PiVersion) {
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("one");
    pi.quit();
    pi_env.no_sidecar_is_left();
    let mut pi = PiRpc::with(&pi_env, &["--model", "cursor/composer-2", "--continue"]);
    assert_eq!(text(&pi.prompt("two")), "Follow-up to: two");
    pi.quit();
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"; 2]);
    let requests = recording.client("runRequest");
    assert_eq!(conversation(requests[0]), conversation(requests[1]));
}

fn a_picture_reaches_cursor_once(version: PiVersion) {
    const DOT: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let mut pi = PiRpc::start(&pi_env);
    let image = json!({"type": "image", "data": DOT, "mimeType": "image/png"});
    pi.send(&json!({"type": "prompt", "message": "look", "images": [image]}));
    assert_eq!(text(&pi.answer()), "First answer.");
    pi.settle();
    pi.prompt("and now?");
    let recording = pi_env.simulator.recorded();
    let requests = recording.client("runRequest");
    let message =
        |n: usize| &requests[n]["runRequest"]["action"]["userMessageAction"]["userMessage"];
    let images = |n: usize| {
        let images = message(n)["selectedContext"]["selectedImages"].as_array();
        images.map_or(0, Vec::len)
    };
    assert_eq!((images(0), images(1)), (1, 0), "{}", message(0));
    assert_eq!(user_text(requests[0]), "look\n[image attached]");
}

fn another_model_and_another_thinking_level_keep_the_conversation(version: PiVersion) {
    let pi_env = PiEnv::playing(version, FOLLOWED);
    let mut pi = PiRpc::start(&pi_env);
    pi.prompt("one");
    let available = pi.ask(json!({"type": "get_available_models"}));
    let thinking = available["models"]
        .as_array()
        .unwrap()
        .iter()
        .find(|model| model["provider"] == "cursor" && model["reasoning"] == true)
        .unwrap();
    let id = thinking["id"].as_str().unwrap();
    pi.ask(json!({"type": "set_model", "provider": "cursor", "modelId": id}));
    // The initial level depends on the version.
    pi.ask(json!({"type": "set_thinking_level", "level": "off"}));
    pi.prompt("two");
    pi.ask(json!({"type": "set_thinking_level", "level": "high"}));
    pi.prompt("three");
    let recording = pi_env.simulator.recorded();
    recording.assert_played(&["completed"; 3]);
    let requests = recording.client("runRequest");
    let model = |n: usize| requests[n]["runRequest"]["requestedModel"].to_string();
    assert_ne!(model(0), model(1), "another model");
    assert_ne!(model(1), model(2), "another level");
    let first = conversation(requests[0]);
    assert!(
        requests
            .iter()
            .all(|request| conversation(request) == first)
    );
}

/// A tool of another extension.
const TOOL: &str = r#"
export default (pi) => pi.registerTool({
  name: "count_words",
  label: "Count words",
  description: "Counts the words of a text",
  parameters: { type: "object", properties: { text: { type: "string" } }, required: ["text"] },
  execute: async (_, { text }) => ({ content: [{ type: "text", text: `${text.split(" ").length} words` }], details: {} }),
});
"#;

fn a_tool_of_pi_is_offered_called_and_answered_in_one_run(version: PiVersion) {
    let scenario = r#"
name = "tool"
[[run]]
steps = [
  { exec = { requestContextArgs = {} } },
  { text = "Counting. " },
  { exec = { mcpArgs = { name = "pi__count_words", toolName = "pi__count_words", providerIdentifier = "pi", toolCallId = "call-1", args = { text = "one two three" } } }, expect = { mcpResult = { success = { content = [ { text = { text = "3 words" } } ] } } } },
  { text = "Three." },
  { checkpoint = "auto" },
  { usage = {} },
  { end = true },
]
"#;
    let pi_env = PiEnv::playing(version, scenario);
    let tool = pi_env.home.path().join("count.ts");
    std::fs::write(&tool, TOOL).unwrap();
    let more = ["--model", "cursor/composer-2", "-e", tool.to_str().unwrap()];
    let mut pi = PiRpc::with(&pi_env, &more);
    pi.send(&json!({"type": "prompt", "message": "count, please"}));
    let call = pi.answer();
    assert_eq!(call["stopReason"], "toolUse", "{call}");
    let wanted = json!({"text": "one two three"});
    assert_eq!(call["content"][1]["name"], "count_words", "{call}");
    assert_eq!(call["content"][1]["arguments"], wanted, "{call}");
    assert_eq!(text(&pi.answer()), "Three.");
    let recording = pi_env.recorded("the run", |recording| recording.verdicts().len() == 1);
    recording.assert_played(&["completed"]);
    assert_eq!(recording.runs(), 1, "one run, no second one");
    let offered = recording.client("runRequest")[0]["runRequest"]["mcpTools"].to_string();
    assert!(offered.contains("pi__count_words"), "{offered}");
}
