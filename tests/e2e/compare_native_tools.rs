//! Native tools: the official client and ours answer the same requests in the same workspace with
//! the same replies. `tests/native/*.json` lists the requests; an intended difference names the
//! line of `docs/protocol.md` that explains it, and our reply. The replies of the official client
//! are in `tests/native/recordings`; `make record` replaces them.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use agent_tools::policy::ToolPolicy;
use serde_json::{Map, Value as Json, json};
use sha2::Digest as _;
use tempfile::TempDir;

use test_support::official_client::OfficialClient;
use test_support::run_client::RunClient;
use test_support::simulator::{Recording, Simulator, Transport};
use test_support::{recordings, root};

/// A step of a corpus, and how our reply is expected to differ.
struct CorpusStep {
    step: Json,
    differs: Option<ExpectedDifference>,
}

struct ExpectedDifference {
    /// The line of `docs/protocol.md` that explains the difference.
    line: String,
    /// Pattern that our reply must match.
    ours: Json,
    /// Their reply varies, and may equal ours by chance.
    sometimes: bool,
}

fn corpus(name: &str) -> Vec<CorpusStep> {
    let path = root().join("tests/native").join(format!("{name}.json"));
    let steps: Vec<Json> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let steps = steps.into_iter().map(|mut step| {
        let object = step.as_object_mut().unwrap();
        let differs = object.remove("differs").map(|line| ExpectedDifference {
            line: line.as_str().unwrap().to_owned(),
            ours: object.remove("ours").unwrap_or_default(),
            sometimes: object.remove("sometimes").is_some(),
        });
        let plain = ["exec", "delay_ms", "await"];
        if !plain.iter().any(|action| object.contains_key(*action)) {
            step = json!({ "exec": step });
        }
        CorpusStep { step, differs }
    });
    steps.collect()
}

fn scenario(steps: &[CorpusStep]) -> (TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let mut all = vec![json!({"exec": {"requestContextArgs": {}}})];
    all.extend(steps.iter().map(|step| step.step.clone()));
    all.push(json!({"usage": {}}));
    let path = folder.path().join("corpus.json");
    let scenario = json!({"name": "corpus", "run": [{"steps": all}]});
    std::fs::write(&path, scenario.to_string()).unwrap();
    (folder, path)
}

/// Empties and fills the workspace; some corpora have an additional script.
fn prepare(sdk: &OfficialClient, name: &str) {
    let outside = sdk.workspace.parent().unwrap().join("outside");
    let _ = std::fs::remove_dir_all(outside);
    open_up(&sdk.workspace);
    for entry in std::fs::read_dir(&sdk.workspace).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name == ".git") {
            continue;
        }
        if path.symlink_metadata().unwrap().is_dir() {
            std::fs::remove_dir_all(path).unwrap()
        } else {
            std::fs::remove_file(path).unwrap()
        }
    }
    for script in ["make-workspace".to_owned(), format!("make-{name}")] {
        let script = root().join("tests/native").join(script);
        if script.exists() {
            let made = Command::new(script).arg(&sdk.workspace).status().unwrap();
            assert!(made.success());
        }
    }
}

/// Restores permissions that a corpus removed, so that the files can be deleted.
fn open_up(workspace: &Path) {
    let mut chmod = Command::new("chmod");
    let opened = chmod.args(["-R", "u+rwX"]).arg(workspace).status();
    assert!(opened.unwrap().success());
}

/// Returns each request and all replies to it, in the order of the requests.
fn exchanges(recording: &Recording) -> Vec<(Json, Vec<Json>)> {
    let mut asked: BTreeMap<u64, (Json, Vec<Json>)> = BTreeMap::new();
    for frame in recording.0["frames"].as_array().unwrap() {
        let json = &frame["json"];
        let id = |message: &Json| message["id"].as_u64().unwrap_or(0);
        if let Some(exec) = json.get("execServerMessage") {
            let mut args = exec.clone();
            let object = args.as_object_mut().unwrap();
            object.remove("id");
            object.remove("execId");
            asked.insert(id(exec), (args, Vec::new()));
        } else if let Some(exec) = json.get("execClientMessage") {
            let mut reply = exec.clone();
            reply.as_object_mut().unwrap().remove("id");
            if let Some((_, replies)) = asked.get_mut(&id(exec)) {
                replies.push(reply);
            }
        } else if let Some(thrown) = json.pointer("/execClientControlMessage/throw")
            && let Some((_, replies)) = asked.get_mut(&id(thrown))
        {
            replies.push(json!({"throw": true}));
        }
    }
    asked.into_values().skip(1).collect()
}

/// Returns a reply without the parts that vary.
fn settled(replies: Vec<Json>) -> Json {
    let mut stream = Map::new();
    let mut others = Vec::new();
    for reply in replies {
        match reply.get("shellStream") {
            // Output is split into chunks of any size.
            Some(event) => {
                for (kind, value) in event.as_object().unwrap() {
                    match (stream.get_mut(kind), value.get("data")) {
                        (Some(Json::String(text)), Some(Json::String(more))) => text.push_str(more),
                        (_, Some(data)) => drop(stream.insert(kind.clone(), data.clone())),
                        (_, None) => drop(stream.insert(kind.clone(), value.clone())),
                    }
                }
            }
            None => others.push(reply),
        }
    }
    if !stream.is_empty() {
        others.push(Json::Object(stream));
    }
    let mut all = Json::Array(others);
    settle(&mut all);
    all
}

fn settle(json: &mut Json) {
    match json {
        Json::Object(object) => {
            for name in ["localExecutionTimeMs", "executionTime"] {
                object.remove(name);
            }
            for name in ["pid", "shellId"] {
                if let Some(value) = object.get_mut(name) {
                    *value = "a number".into();
                }
            }
            let by_request = ["reason", "backgroundReason"].iter().any(|name| {
                object
                    .get(*name)
                    .is_some_and(|reason| reason == "SHELL_BACKGROUND_REASON_USER_REQUEST")
            });
            if let Some(value) = object.get_mut("msToWait")
                && by_request
            {
                *value = "a while".into();
            }
            for name in ["filePath", "fullOutputPath"] {
                if let Some(value) = object.get_mut(name) {
                    *value = "a file".into();
                }
            }
            if let Some(Json::String(text)) = object.get_mut("output")
                && let Some((shown, rest)) = text.split_once("Full output: ")
                && let Some((_, rest)) = rest.split_once(']')
            {
                *text = format!("{shown}Full output: a file]{rest}");
            }
            // Files with the same modification time may be listed in any order.
            for name in ["matches", "counts", "files"] {
                if let Some(Json::Array(files)) = object.get_mut(name) {
                    files.sort_by_key(|file| file.get("file").unwrap_or(file).to_string());
                }
            }
            if let Some(Json::String(text)) = object.get_mut("error")
                && let Some((_, rest)) = text.split_once(" stdin: ")
            {
                *text = format!("stdin: {rest}"); // the rest names a shell by its number
            }
            object.values_mut().for_each(settle);
        }
        Json::Array(items) => items.iter_mut().for_each(settle),
        _ => {}
    }
}

/// Whether a reply matches a pattern: objects list some fields or are empty; a string that starts
/// with `~` is a substring, one that starts with `#` the digest of a long value.
fn holds(reply: &Json, pattern: &Json) -> bool {
    match (reply, pattern) {
        (Json::Object(reply), Json::Object(pattern)) if pattern.is_empty() => reply.is_empty(),
        (Json::Object(reply), Json::Object(pattern)) => pattern
            .iter()
            .all(|(name, pattern)| reply.get(name).is_some_and(|value| holds(value, pattern))),
        (Json::Array(reply), Json::Array(pattern)) => {
            let mut pairs = reply.iter().zip(pattern);
            reply.len() == pattern.len() && pairs.all(|(value, pattern)| holds(value, pattern))
        }
        (value, Json::String(pattern)) => match (value, pattern.split_at_checked(1)) {
            (Json::String(text), Some(("~", part))) => text.contains(part),
            (value, Some(("~", part))) => value.to_string().contains(part),
            (value, Some(("#", expected))) => digest(value) == expected,
            (value, _) => value == pattern,
        },
        (value, pattern) => value == pattern,
    }
}

fn digest(json: &Json) -> String {
    let hash = sha2::Sha256::digest(json.to_string());
    hash.iter()
        .take(6)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The corpora that the official client plays each time; for the others its recorded replies count.
const LIVE: [&str; 2] = ["read", "rgignore"];

/// A request and the settled reply to it, both without the names of this machine.
type Exchange = (Json, Json);

/// Plays a corpus with our client and compares every reply with that of the official client.
async fn compare(name: &str) {
    compare_steps(name, corpus(name), ToolPolicy::default(), None).await;
}

/// The same for given steps. `url` is one that differs with each run.
async fn compare_steps(name: &str, steps: Vec<CorpusStep>, policy: ToolPolicy, url: Option<&str>) {
    let (_folder, path) = scenario(&steps);
    let sdk = OfficialClient::new();
    let home = sdk.home.path().canonicalize().unwrap();
    let settle_all = |recording: &Recording, backend: &str| -> Vec<Exchange> {
        recording.assert_played(&["completed"]);
        let anonymous = |json: Json| -> Json {
            let path = std::env::var("PATH").unwrap();
            let mut text = json.to_string();
            text = text.replace(&format!("PATH={path}"), "PATH=$PATH");
            text = text.replace(backend, "$BACKEND");
            text = text.replace(root().to_str().unwrap(), "$ROOT");
            text = text.replace(sdk.workspace.to_str().unwrap(), "$WS");
            text = text.replace(home.to_str().unwrap(), "$HOME");
            if let Some(url) = url {
                text = text.replace(url, "$PAGES");
            }
            serde_json::from_str(&text).unwrap()
        };
        let settled_pair = |(mut request, replies): (Json, Vec<Json>)| {
            settle(&mut request);
            (anonymous(request), anonymous(settled(replies)))
        };
        let exchanges = exchanges(recording).into_iter();
        exchanges.map(settled_pair).collect()
    };

    let live = if recordings::is_recording() || LIVE.contains(&name) {
        prepare(&sdk, name);
        let simulator = Simulator::with(Transport::H2c, &path);
        let spec = json!({"agent": {}, "sends": [{"text": "go"}]});
        sdk.drive(&simulator, spec);
        let replies = settle_all(&simulator.recording().await, &simulator.url).into_iter();
        let replies = replies.map(|(request, reply)| json!([abridged(&request), abridged(&reply)]));
        Some(replies.collect::<Vec<Json>>())
    } else {
        None
    };
    let theirs = match live {
        Some(live) => {
            if recordings::is_recording() && !LIVE.contains(&name) {
                recordings::save(name, &json!(live));
            }
            live
        }
        None => match recordings::load(name).1 {
            Json::Array(recorded) => recorded,
            other => panic!("not a recording: {other}"),
        },
    };

    prepare(&sdk, name);
    let simulator = Simulator::with(Transport::H2c, &path);
    let mut ours = RunClient::new(&simulator, Transport::H2c);
    ours.workspace = sdk.workspace.clone();
    ours.home = Some(home.clone());
    ours.native = policy;
    ours.prompt("go").await;
    let ours = settle_all(&simulator.recording().await, &simulator.url);
    open_up(&sdk.workspace);

    let asked: Vec<&CorpusStep> = steps
        .iter()
        .filter(|step| step.step.get("exec").is_some())
        .collect();
    assert_eq!(ours.len(), asked.len());
    assert_eq!(theirs.len(), asked.len(), "run `make record`");
    let mut wrong = Vec::new();
    let mut equal = 0;
    for (at, (step, (request, our_reply))) in asked.iter().zip(ours).enumerate() {
        assert_eq!(theirs[at][0], abridged(&request), "run `make record`");
        let their_reply = &theirs[at][1];
        match (*their_reply == abridged(&our_reply), &step.differs) {
            (true, None) => equal += 1,
            (
                same,
                Some(ExpectedDifference {
                    ours, sometimes, ..
                }),
            ) if !same || *sometimes => {
                let reply = match our_reply.as_array() {
                    Some(only) if only.len() == 1 => &only[0],
                    _ => &our_reply,
                };
                if !holds(reply, ours) {
                    let digest = digest(reply);
                    let reply = shortened(reply);
                    wrong.push(format!(
                        "{request}\n  ours   {reply}\n  is #{digest}, not {ours}"
                    ));
                }
            }
            (_, Some(ExpectedDifference { line, .. })) => {
                wrong.push(format!("{request}\n  is equal, though {line:?}"));
            }
            (false, None) => wrong.push(format!(
                "{request}\n  theirs {}\n  ours   {}",
                shortened(their_reply),
                shortened(&our_reply)
            )),
        }
    }
    eprintln!("{name}: {} requests, {equal} equal", asked.len());
    let report = wrong.join("\n");
    assert!(wrong.is_empty(), "{} differ:\n{report}", wrong.len());
}

/// Returns a value with digests in place of long texts and lists, to keep recordings short.
fn abridged(json: &Json) -> Json {
    match json {
        Json::String(text) if text.len() > 500 => {
            json!(format!("{} bytes, digest {}", text.len(), digest(json)))
        }
        Json::Array(items) if items.len() > 50 => {
            json!(format!("{} items, digest {}", items.len(), digest(json)))
        }
        Json::Array(items) => items.iter().map(abridged).collect(),
        Json::Object(object) => {
            let fields = object.iter();
            Json::Object(
                fields
                    .map(|(name, value)| (name.clone(), abridged(value)))
                    .collect(),
            )
        }
        other => other.clone(),
    }
}

/// The recordings are replaced when the client is: `make record`.
#[test]
fn the_recordings_are_of_the_installed_client() {
    let folder = root().join("tests/native");
    let corpora = std::fs::read_dir(folder).unwrap();
    let names = corpora.filter_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.strip_suffix(".json").map(str::to_owned)
    });
    if recordings::is_recording() {
        return;
    }
    let names = names.filter(|name| !LIVE.contains(&name.as_str()));
    for name in names.chain(["messages".into()]) {
        let (recorded, _) = recordings::load(&name);
        let installed = recordings::client_version();
        assert_eq!(
            recorded, installed,
            "{name}: the official client is another version than the recorded one; run `make record`"
        );
    }
}

fn shortened(json: &Json) -> String {
    let text = json.to_string();
    match text.char_indices().nth(1200) {
        Some((at, _)) => format!("{}… ({} bytes)", &text[..at], text.len()),
        None => text,
    }
}

#[tokio::test]
async fn reads_compare_equal() {
    compare("read").await;
}

#[tokio::test]
async fn lists_compare_equal() {
    compare("ls").await;
}

#[tokio::test]
async fn searches_compare_equal() {
    compare("grep").await;
}

#[tokio::test]
async fn changes_compare_equal() {
    compare("files").await;
}

#[tokio::test]
async fn commands_compare_equal() {
    compare("shell").await;
}

#[tokio::test]
async fn ignored_files_compare_equal() {
    compare("ignored").await;
}

#[tokio::test]
async fn ignore_files_of_ripgreps_own_compare_equal() {
    compare("rgignore").await;
}

/// Permissions do not apply to root, which therefore runs the test as an unprivileged user.
#[tokio::test]
async fn protected_files_compare_equal() {
    use std::os::unix::process::CommandExt as _;
    const UNPRIVILEGED: u32 = 65_534;
    if rustix::process::geteuid().is_root() {
        if recordings::is_recording() {
            use std::os::unix::fs::PermissionsExt as _;
            let file = recordings::file("closed");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o666)).unwrap();
        }
        let run = Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "compare_native_tools::protected_files_compare_equal",
            ])
            .arg("--nocapture")
            .uid(UNPRIVILEGED)
            .gid(UNPRIVILEGED)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(run.status.success(), "{errors}");
        assert!(errors.contains("closed: "), "it ran: {errors}");
        return;
    }
    compare("closed").await;
}

/// Fetches use no proxy, because a proxy would resolve names without our checks.
#[test]
fn no_proxy_is_used_for_fetch() {
    let proxy = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let steps = [
        r#"{ exec = { requestContextArgs = {} } }"#,
        r#"{ exec = { fetchArgs = { url = "http://inside.invalid/" } }, expect = { fetchResult = { error = { error = "fetch failed" } } } }"#,
        test_support::scenario::END,
    ];
    let folder = tempfile::tempdir().unwrap();
    let scenario = folder.path().join("proxy.toml");
    let text = format!(
        "name = \"proxy\"\n[[run]]\nsteps = [ {} ]",
        steps.join(", ")
    );
    std::fs::write(&scenario, text).unwrap();
    let simulator = Simulator::with(Transport::H2c, &scenario);
    let env = [
        ("PI_CURSOR_HTTP", "2"),
        ("http_proxy", address.as_str()),
        ("NO_PROXY", "127.0.0.1"),
        ("PATH", "/usr/bin:/bin"),
    ];
    let mut session = test_support::rpc_session::RpcSession::new(&simulator, "proxy", &env);
    session.workspace = folder.path().to_str().unwrap().into();
    let outcome = session.prompt("go");
    assert_eq!(outcome.stop, "stop", "{outcome:?}");
    simulator.recorded().assert_played(&["completed"]);
    proxy.set_nonblocking(true).unwrap();
    assert!(proxy.accept().is_err(), "the proxy was asked");
}

/// Returns responses of a web server, including unusual ones.
fn pages() -> String {
    use std::io::{BufRead as _, BufReader, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = head.next().and_then(Result::ok).unwrap_or_default();
            let rest: Vec<String> = head
                .map_while(Result::ok)
                .take_while(|line| !line.is_empty())
                .collect();
            let named = rest
                .iter()
                .any(|line| line.to_ascii_lowercase().starts_with("user-agent: "));
            let page = first.split(' ').nth(1).unwrap_or_default();
            let (status, more, body): (&str, &str, &[u8]) = match page {
                _ if !named => ("400 Who", "", b"who asks?"),
                "/plain" => (
                    "200 OK",
                    "Content-Type: text/plain; charset=utf-8\r\n",
                    b"text\n",
                ),
                "/none" => ("200 OK", "", b"no type\n"),
                "/mark" => (
                    "200 OK",
                    "Content-Type: text/html\r\n",
                    b"\xef\xbb\xbfmarked\n",
                ),
                "/latin1" => (
                    "200 OK",
                    "Content-Type: text/html; charset=iso-8859-1\r\n",
                    b"caf\xe9\n",
                ),
                "/missing" => ("404 No", "Content-Type: text/html\r\n", b"not here"),
                "/error" => ("500 Oh", "Content-Type: text/html\r\n", b""),
                "/redirect" => ("302 There", "Location: /plain\r\n", b""),
                "/round" => ("302 There", "Location: /round\r\n", b""),
                "/bytes" => (
                    "200 OK",
                    "Content-Type: application/octet-stream\r\n",
                    b"\0\x01\xff\xfe",
                ),
                "/empty" => ("204 Nothing", "", b""),
                other => (
                    "200 OK",
                    "Content-Type: application/json\r\n",
                    other.as_bytes(),
                ),
            };
            let length = body.len();
            let head = format!(
                "HTTP/1.1 {status}\r\n{more}Content-Length: {length}\r\nConnection: close\r\n\r\n"
            );
            let _ = stream.write_all(&[head.as_bytes(), body].concat());
        }
    });
    url
}

#[tokio::test]
async fn fetches_compare_equal() {
    let pages = pages();
    let mut steps = corpus("fetch");
    for step in &mut steps {
        let text = step.step.to_string().replace("$PAGES", &pages);
        step.step = serde_json::from_str(&text).unwrap();
    }
    let policy = ToolPolicy {
        allow_private_fetch: true,
        ..ToolPolicy::default()
    };
    compare_steps("fetch", steps, policy, Some(&pages)).await;
}

#[tokio::test]
async fn plain_text_tools_compare_equal() {
    compare("pi").await;
}

#[tokio::test]
async fn the_rest_compares_equal() {
    compare("misc").await;
}

#[test]
fn every_intended_difference_is_explained() {
    let page = std::fs::read_to_string(root().join("docs/protocol.md")).unwrap();
    let mut requests = 0;
    for entry in std::fs::read_dir(root().join("tests/native")).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "json") {
            continue;
        }
        let name = path.file_stem().unwrap().to_str().unwrap();
        for step in corpus(name) {
            requests += usize::from(step.step.get("exec").is_some());
            if let Some(ExpectedDifference { line, .. }) = &step.differs {
                assert!(
                    page.contains(line),
                    "docs/protocol.md does not explain {line:?}"
                );
            }
        }
    }
    assert!(requests >= 120, "the corpus has only {requests} requests");
}

/// The workspace is the same folder for both clients, and a script fills it.
#[test]
fn the_workspace_script_makes_the_odd_files() {
    let sdk = OfficialClient::new();
    prepare(&sdk, "");
    let has = |name: &str| sdk.workspace.join(name).symlink_metadata().is_ok();
    for name in [
        "empty.txt",
        "sparse.bin",
        "loop",
        "pipe",
        "latin1.txt",
        "many/f09999.txt",
    ] {
        assert!(has(name), "{name}");
    }
    assert!(Path::new(&sdk.workspace.join("../outside/o.txt")).exists());
}
