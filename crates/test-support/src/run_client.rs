//! Our client, used as a library, against the same simulator.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use agent::run::{
    Action, Backend, BlobKey, Blobs, Command, Ended, Handle, Injection, MemoryBlobs, Model,
    Outcome, RetriesUsed, RetryPolicy, RunEvent, RunSpec, Timing, ToolGates, UserMessage, start,
};
use agent_tools::handlers;
use agent_tools::policy::{ExecutedBy, ToolPolicy};
use agent_tools::request_context::RunContext;
use agent_tools::shell::ShellSession;
use agent_tools::workspace::repository_cache::RepositoryCache;
use cursor_client::ClientOptions;
use cursor_client::headers::HttpVersion;
use cursor_client::http_version::Preference;
use uuid::Uuid;

use crate::simulator::{Simulator, Transport};

/// A conversation: one client, one set of blobs, one checkpoint.
pub struct RunClient {
    pub backend: Backend,
    blobs: Arc<MemoryBlobs>,
    spec: RunSpec,
    pub workspace: PathBuf,
    pub home: Option<PathBuf>,
    /// The policy for native tools; off unless a test is about them.
    pub native: ToolPolicy,
    pub shell_session: Arc<ShellSession>,
    pub timing: Timing,
    pub policy: RetryPolicy,
}

/// The events and the result of one run.
#[derive(Debug)]
pub struct RunOutcome {
    pub text: String,
    pub thinking: String,
    pub events: Vec<RunEvent>,
    pub ended: Ended,
}

/// An action to take when the text so far contains a string.
pub enum OnText {
    Never,
    Cancel(&'static str),
    Steer(&'static str, &'static str),
}

/// Returns the options of a client with a key of a server.
pub fn client_options(url: &str) -> ClientOptions {
    let mut options = ClientOptions {
        api_key: Some("crsr_test".into()),
        ..ClientOptions::default()
    };
    options.endpoints.backend = Some(url.to_owned());
    options
}

impl RunClient {
    /// Must be called inside a runtime.
    pub fn new(simulator: &Simulator, transport: Transport) -> Self {
        Self::with(simulator, transport, |_| {})
    }

    pub fn with(
        simulator: &Simulator,
        transport: Transport,
        change: impl FnOnce(&mut ClientOptions),
    ) -> Self {
        let mut options = client_options(&simulator.url);
        options.trust.extra = simulator.ca.clone();
        if transport == Transport::Http1 {
            options.http_version = Preference::Always(HttpVersion::Http1);
        }
        change(&mut options);
        let backend = Backend::new(&options).unwrap();
        Self {
            backend,
            blobs: Arc::default(),
            spec: RunSpec {
                conversation_id: format!("agent-{}", Uuid::new_v4()),
                state: None,
                action: Action::Resume,
                model: Model {
                    id: "composer-2".into(),
                    ..Model::default()
                },
                offers: Vec::new(),
                blob_key: BlobKey::random().unwrap(),
                gates: ToolGates::default(),
                shown: String::new(),
                spent: RetriesUsed::default(),
                delay: Duration::ZERO,
                effects: Default::default(),
            },
            workspace: std::env::temp_dir(),
            home: None,
            native: ToolPolicy {
                mode: Some(ExecutedBy::Off),
                ..ToolPolicy::default()
            },
            shell_session: Arc::default(),
            timing: Timing::default(),
            // Short, because other tests check the delays.
            policy: RetryPolicy {
                base_delay: Duration::from_millis(1),
                ..RetryPolicy::default()
            },
        }
    }

    pub async fn prompt(&mut self, text: &str) -> RunOutcome {
        self.prompt_and(text, OnText::Never).await
    }

    /// Starts a run and returns its handle.
    pub fn begin(&mut self, text: &str) -> Handle {
        let blobs = Arc::clone(&self.blobs);
        self.begin_with(text, blobs)
    }

    /// The same, with its own blobs.
    pub fn begin_with(&mut self, text: &str, blobs: Arc<dyn Blobs>) -> Handle {
        self.spec.action = Action::UserMessage(UserMessage {
            text: text.into(),
            ..UserMessage::default()
        });
        let facts = RunContext {
            workspace: self.workspace.clone(),
            home: self.home.clone(),
            offers: self.spec.offers.clone(),
            // A busy machine must not make the context incomplete.
            repositories: Arc::new(RepositoryCache::waiting(Duration::from_secs(60))),
            ..RunContext::default()
        };
        let (executor, _) =
            handlers::executor_without_host(facts, &self.native, &self.shell_session, false);
        start(
            self.backend.clone(),
            self.spec.clone(),
            executor,
            blobs,
            self.policy,
            self.timing,
        )
    }

    pub async fn prompt_and(&mut self, text: &str, when: OnText) -> RunOutcome {
        let mut handle = self.begin(text);
        let mut when = Some(when);
        let mut outcome = RunOutcome {
            text: String::new(),
            thinking: String::new(),
            events: Vec::new(),
            ended: Ended {
                outcome: Outcome::Cancelled,
                usage: None,
                attempts: 0,
                was_accepted: false,
                spent: RetriesUsed::default(),
                delay: Duration::ZERO,
                visible_progress: agent::run::VisibleProgress::Nothing,
                effects: Default::default(),
            },
        };
        loop {
            let event = tokio::time::timeout(Duration::from_secs(60), handle.events.recv())
                .await
                .expect("the run goes on without end")
                .expect("the last event is Ended");
            match &event {
                RunEvent::Text(text) => outcome.text.push_str(text),
                RunEvent::Thinking(text) => outcome.thinking.push_str(text),
                RunEvent::Checkpoint(saved) => self.spec.state = Some(saved.state.clone()),
                RunEvent::Ended(ended) => {
                    outcome.ended = ended.clone();
                    assert!(
                        handle.events.recv().await.is_none(),
                        "nothing after the end"
                    );
                    return outcome;
                }
                _ => {}
            }
            let command = match &when {
                Some(OnText::Cancel(needle)) if outcome.text.contains(needle) => {
                    Some(Command::Cancel)
                }
                Some(OnText::Steer(needle, message)) if outcome.text.contains(needle) => {
                    Some(Command::Inject(Injection {
                        id: Uuid::new_v4(),
                        message: agent::run::UserMessage {
                            text: (*message).into(),
                            ..Default::default()
                        },
                    }))
                }
                _ => None,
            };
            if let Some(command) = command {
                when = None;
                handle.commands.send(command).await.unwrap();
            }
            outcome.events.push(event);
        }
    }
}

impl RunOutcome {
    #[track_caller]
    pub fn finished(&self, text: &str) {
        assert_eq!(self.ended.outcome, Outcome::Finished);
        assert_eq!(self.text, text);
    }

    #[track_caller]
    pub fn failure(&self) -> String {
        match &self.ended.outcome {
            Outcome::Failed(failure) => failure.to_string(),
            other => panic!("did not fail: {other:?}"),
        }
    }
}
