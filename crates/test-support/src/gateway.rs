//! `cursor-sidecar gateway` as a process, and its clients.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};

use serde_json::{Value as Json, json};

use crate::binary;
use crate::processes::peak_kib;
use crate::simulator::Simulator;

/// A gateway process with its own folder.
pub struct GatewayProcess {
    child: Child,
    place: tempfile::TempDir,
    pub url: String,
    pub token: String,
    /// The message it printed when it was ready.
    pub ready: Json,
}

impl GatewayProcess {
    pub fn start(simulator: &Simulator, env: &[(&str, &str)]) -> Self {
        let mut all = vec![
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
            ("CURSOR_API_KEY", "crsr_test"),
        ];
        all.extend_from_slice(env);
        Self::launch(&all)
    }

    /// Starts a gateway that may open only so many files.
    pub fn with_files(simulator: &Simulator, files: u32) -> Self {
        let mut command = Command::new("/bin/sh");
        let limit = format!("ulimit -n {files} && exec \"$0\" \"$@\"");
        command.args(["-c", &limit]).arg(binary());
        let env = [
            ("CURSOR_BACKEND_URL", simulator.url.as_str()),
            ("CURSOR_API_KEY", "crsr_test"),
        ];
        Self::spawn(command, &env)
    }

    pub fn launch(env: &[(&str, &str)]) -> Self {
        Self::spawn(Command::new(binary()), env)
    }

    fn spawn(mut command: Command, env: &[(&str, &str)]) -> Self {
        let place = tempfile::tempdir().unwrap();
        let stderr = std::fs::File::create(place.path().join("stderr")).unwrap();
        let mut child = command
            .arg("gateway")
            .env_clear()
            .env("PI_CURSOR_STATE_DIR", place.path())
            .env("HOME", place.path())
            .envs(env.iter().copied())
            .current_dir(place.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let ready: Json = serde_json::from_str(&line).expect("the gateway says it is ready");
        let token = match ready["tokenFile"].as_str() {
            Some(file) => std::fs::read_to_string(file).unwrap().trim().to_owned(),
            None => {
                let variable = env
                    .iter()
                    .find(|(name, _)| *name == "CURSOR_SIDECAR_GATEWAY_TOKEN");
                variable.unwrap().1.to_owned()
            }
        };
        assert!(!line.contains(&token), "the token is not shown");
        Self {
            child,
            place,
            url: ready["url"].as_str().unwrap().to_owned(),
            token,
            ready,
        }
    }

    pub fn folder(&self) -> &Path {
        self.place.path()
    }

    /// Returns its peak memory in KiB; `None` if the system does not report it.
    pub fn peak_kib(&self) -> Option<u64> {
        peak_kib(self.child.id())
    }

    pub fn chat(&self) -> ChatClient {
        ChatClient::new(&self.url, &self.token)
    }

    pub fn port(&self) -> u16 {
        let port = self.url.strip_prefix("http://127.0.0.1:").unwrap();
        port.strip_suffix("/v1").unwrap().parse().unwrap()
    }

    /// Opens a connection.
    pub fn connect(&self) -> TcpStream {
        TcpStream::connect(("127.0.0.1", self.port())).unwrap()
    }

    /// Sends text that need not be HTTP and returns the whole response.
    pub fn raw(&self, text: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(text.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    /// Sends SIGTERM and waits for the exit.
    pub fn end(&mut self) -> ExitStatus {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.child.wait().unwrap()
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client that keeps its history and has tools.
pub struct ChatClient {
    http: reqwest::Client,
    url: String,
    token: String,
    pub session: Option<&'static str>,
    pub messages: Vec<Json>,
    pub tools: Vec<Json>,
    pub stream: bool,
}

/// The content of a response.
#[derive(Debug, Default, Clone)]
pub struct ChatResponse {
    pub status: u16,
    pub text: String,
    pub thinking: String,
    pub calls: Vec<Json>,
    pub finish: String,
    pub usage: Json,
    pub error: Json,
    /// The number of SSE comments.
    pub comments: usize,
    /// The last event or comment.
    pub last: String,
}

pub fn function(name: &str, arguments: &[&str]) -> Json {
    let properties: serde_json::Map<String, Json> = arguments
        .iter()
        .map(|name| ((*name).to_owned(), json!({"type": "string"})))
        .collect();
    json!({"type": "function", "function": {"name": name, "description": format!("does {name}"),
           "parameters": {"type": "object", "properties": properties}}})
}

impl ChatClient {
    pub fn new(url: &str, token: &str) -> Self {
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        Self {
            http,
            url: url.to_owned(),
            token: token.to_owned(),
            session: None,
            messages: vec![json!({"role": "system", "content": "Be brief."})],
            tools: Vec::new(),
            stream: true,
        }
    }

    pub fn user(&mut self, text: &str) {
        self.messages.push(json!({"role": "user", "content": text}));
    }

    pub fn result(&mut self, call: &Json, text: &str) {
        let message = json!({"role": "tool", "tool_call_id": call["id"], "content": text});
        self.messages.push(message);
    }

    pub fn body(&self) -> Json {
        let mut body = json!({"model": "composer-2", "messages": self.messages,
            "temperature": 0.2, "max_tokens": 1_000_000_000, "stream": self.stream});
        if self.stream {
            body["stream_options"] = json!({"include_usage": true});
        }
        if !self.tools.is_empty() {
            body["tools"] = self.tools.clone().into();
        }
        body
    }

    pub async fn send(&self, body: &Json) -> reqwest::Response {
        let mut request = self
            .http
            .post(format!("{}/chat/completions", self.url))
            .bearer_auth(&self.token)
            .body(body.to_string());
        if let Some(session) = self.session {
            request = request.header("x-session-id", session);
        }
        request.send().await.unwrap()
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = self.url.replace("/v1", path);
        let answer = self.http.get(url).bearer_auth(&self.token).send().await;
        let answer = answer.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// Runs a turn and adds the answer to the history.
    pub async fn turn(&mut self) -> ChatResponse {
        let answer = self.send(&self.body()).await;
        let response = ChatResponse::read(answer).await;
        if response.error.is_null() {
            let mut message = json!({"role": "assistant", "content": response.text});
            if !response.calls.is_empty() {
                message["tool_calls"] = response.calls.clone().into();
            }
            self.messages.push(message);
        }
        response
    }

    pub async fn prompt(&mut self, text: &str) -> ChatResponse {
        self.user(text);
        self.turn().await
    }
}

impl ChatResponse {
    pub async fn read(answer: reqwest::Response) -> Self {
        let mut response = Self {
            status: answer.status().as_u16(),
            ..Self::default()
        };
        let kind = answer.headers()["content-type"]
            .to_str()
            .unwrap()
            .to_owned();
        let text = answer.text().await.unwrap();
        if kind.starts_with("application/json") {
            response.whole(&serde_json::from_str(&text).unwrap());
        } else {
            assert_eq!(kind, "text/event-stream; charset=utf-8");
            response.stream(&text);
        }
        response
    }

    fn whole(&mut self, body: &Json) {
        self.error = body["error"].clone();
        self.usage = body["usage"].clone();
        if self.error.is_null() {
            assert_eq!(body["object"], "chat.completion", "{body}");
            let choice = &body["choices"][0];
            self.receive(&choice["message"]);
            self.finish = choice["finish_reason"].as_str().unwrap().into();
        }
    }

    pub fn stream(&mut self, text: &str) {
        for event in text.split_terminator("\n\n") {
            self.last = event.to_owned();
            if event.starts_with(':') {
                self.comments += 1;
                continue;
            }
            let data = event.lines().find_map(|line| line.strip_prefix("data: "));
            let data = data.unwrap_or_else(|| panic!("{event:?}"));
            if data == "[DONE]" {
                continue;
            }
            let chunk: Json = serde_json::from_str(data).unwrap();
            if event.starts_with("event: error") {
                assert!(self.error.is_null(), "one end: {text}");
                self.error = chunk["error"].clone();
                continue;
            }
            assert!(
                self.error.is_null() || self.finish.is_empty(),
                "one end: {text}"
            );
            assert_eq!(chunk["object"], "chat.completion.chunk", "{chunk}");
            if let Some(usage) = chunk.get("usage") {
                assert_eq!(chunk["choices"], json!([]));
                self.usage = usage.clone();
                continue;
            }
            let choice = &chunk["choices"][0];
            self.receive(&choice["delta"]);
            if let Some(finish) = choice["finish_reason"].as_str() {
                assert_eq!(self.finish, "", "one end");
                self.finish = finish.into();
            }
        }
    }

    fn receive(&mut self, delta: &Json) {
        self.text.push_str(delta["content"].as_str().unwrap_or(""));
        let thinking = delta["reasoning_content"].as_str().unwrap_or("");
        self.thinking.push_str(thinking);
        for call in delta["tool_calls"].as_array().unwrap_or(&Vec::new()) {
            if let Some(index) = call["index"].as_u64() {
                assert_eq!(index as usize, self.calls.len());
            }
            let mut call = call.clone();
            call.as_object_mut().unwrap().shift_remove("index");
            self.calls.push(call);
        }
    }
}
