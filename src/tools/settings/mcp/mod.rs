//! MCP servers of the user: connected when a turn first needs them, all at once, behind its
//! back. A server that is slow or dead costs a turn nothing but its tools; they join when it
//! is there. One that was there and ended is connected anew by whoever needs it next.

mod answer;
pub mod config;
mod connect;
mod http;
mod lines;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rmcp::model::Tool;
use rmcp::service::{Peer, RoleClient};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::tools::bridge::schema;
use crate::tools::leash::Leash;
use crate::tools::native::Group;
use crate::tools::offer::Offer;
use config::{ServerConfig, Way, plain};

/// How long the first turn waits for servers it has just started, so that it has their
/// tools. Once a server; no later turn waits.
const FIRST_WAIT: Duration = Duration::from_millis(500);
/// Many more tools and Cursor fails the whole request.
const MOST_TOOLS: usize = 250;
/// A server that failed is tried again after this, when a turn begins.
const AGAIN: Duration = Duration::from_secs(30);

/// One server.
#[derive(Debug)]
pub struct Server {
    /// As settings name it.
    pub config: ServerConfig,
    leash: Leash,
    times: Times,
    state: watch::Sender<State>,
    hold: Mutex<Hold>,
}

/// How long things may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    /// Being there.
    pub(super) connect: Duration,
    /// A call.
    pub(super) call: Duration,
}

/// What ends with a server.
#[derive(Debug, Default)]
struct Hold {
    task: Option<AbortHandle>,
    group: Option<Group>,
    /// When it was first needed since it was last there.
    first: Option<Instant>,
    /// The connection that counts; what is told of others comes too late.
    connection: Connection,
    /// Nobody may start it any more.
    over: bool,
}

/// One connection of a server after the other.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Connection(u64);

impl Hold {
    /// Ends a connection and its processes.
    fn leave(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
        self.group = None;
    }
}

/// How a server fares.
#[derive(Debug, Clone, Default)]
pub(super) enum State {
    /// Nobody needed it yet.
    #[default]
    Asleep,
    /// It is being connected.
    Loading,
    /// It is there.
    Ready(Arc<Ready>),
    /// It is not.
    Failed { why: Why, at: Instant },
}

/// A connected server.
#[derive(Debug)]
pub(super) struct Ready {
    pub(super) peer: Peer<RoleClient>,
    pub(super) tools: Vec<Tool>,
    pub(super) instructions: Option<String>,
}

/// Why a server is not there. No text of its own is told: it may quote a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Why {
    /// The program cannot be started.
    #[error("its command cannot be started: {0}")]
    Start(std::io::ErrorKind),
    /// Its settings cannot be used.
    #[error("{0}")]
    Settings(&'static str),
    /// It did not answer in time.
    #[error("it did not answer within {} s", .0.as_secs())]
    Slow(Duration),
    /// It wants a sign-in.
    #[error("it wants a sign-in, which this client cannot do; put a token into its headers")]
    SignIn,
    /// It said no, or nothing that could be understood.
    #[error("it could not be connected")]
    Refused,
    /// It was there and is gone.
    #[error("it has ended")]
    Ended,
}

impl Server {
    pub(super) fn new(config: ServerConfig, times: Times, leash: &Leash) -> Arc<Self> {
        Arc::new(Self {
            config,
            leash: leash.clone(),
            times,
            state: watch::Sender::new(State::Asleep),
            hold: Mutex::default(),
        })
    }

    fn hold(&self) -> MutexGuard<'_, Hold> {
        self.hold.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_like(&self, config: &ServerConfig, times: Times) -> bool {
        self.config == *config && self.times == times
    }

    /// How it fares now.
    pub(super) fn state(&self) -> State {
        self.state.borrow().clone()
    }

    /// Starts it, if it is not there and has not just failed to be.
    pub(super) fn wake(self: &Arc<Self>) {
        let mut hold = self.hold();
        let (wanted, was_there) = match &*self.state.borrow() {
            State::Asleep => (true, false),
            State::Failed {
                why: Why::Ended, ..
            } => (true, true),
            State::Failed { at, .. } => (at.elapsed() >= AGAIN, false),
            State::Loading | State::Ready(_) => (false, false),
        };
        if !wanted || hold.over {
            return;
        }
        if was_there {
            hold.first = None;
        }
        self.state.send_replace(State::Loading);
        hold.group = None;
        hold.connection.0 += 1;
        let server = Arc::downgrade(self);
        let config = self.config.clone();
        let limit = self.times.connect;
        let task = tokio::spawn(connect::keep(server, hold.connection, config, limit));
        hold.task = Some(task.abort_handle());
    }

    /// Where it is reached, as hooks are told it: what kind of place, and which.
    pub(super) fn place(&self) -> (&'static str, String) {
        match &self.config.way {
            Way::Http { url, .. } => ("url", url.clone()),
            Way::Command { program, args, .. } => (
                "command",
                [std::slice::from_ref(program), &args[..]]
                    .concat()
                    .join(" "),
            ),
        }
    }

    /// Tells how a connection fares. One that failed takes its processes along: their numbers
    /// may soon be others'.
    fn tell(&self, connection: Connection, state: State) {
        let mut hold = self.hold();
        if hold.connection != connection {
            return;
        }
        if matches!(state, State::Failed { .. }) {
            hold.group = None;
        }
        self.state.send_replace(state);
    }

    /// Gives up a connection that turned out to be broken.
    fn lose(&self, broken: &Arc<Ready>) {
        let mut hold = self.hold();
        let is_broken =
            matches!(&*self.state.borrow(), State::Ready(ready) if Arc::ptr_eq(ready, broken));
        if is_broken {
            hold.leave();
            hold.connection.0 += 1;
            let (why, at) = (Why::Ended, Instant::now());
            self.state.send_replace(State::Failed { why, at });
        }
    }

    /// Keeps the processes of a connection, so that they end with it.
    fn keep_group(&self, connection: Connection, group: Group) {
        let mut hold = self.hold();
        if hold.connection == connection {
            hold.group = Some(group);
        }
    }

    /// Takes over the tools a connection has now.
    fn renew(&self, tools: Vec<Tool>) {
        let _hold = self.hold();
        self.state.send_if_modified(|state| {
            let State::Ready(old) = state else {
                return false;
            };
            *state = State::Ready(Arc::new(Ready {
                peer: old.peer.clone(),
                tools,
                instructions: old.instructions.clone(),
            }));
            true
        });
    }

    /// Ends it, and its processes, for good.
    pub(super) fn end(&self) {
        let mut hold = self.hold();
        hold.over = true;
        hold.leave();
    }

    /// Waits until it is there or not; as long as connecting may take.
    async fn settled(&self) -> State {
        let mut states = self.state.subscribe();
        let settled = states.wait_for(|state| !matches!(state, State::Loading));
        match settled.await {
            Ok(state) => state.clone(),
            Err(_) => self.state(),
        }
    }

    /// Its tools, as they are offered.
    pub(super) fn offers(&self) -> Vec<Offer> {
        let State::Ready(ready) = self.state() else {
            return Vec::new();
        };
        let provider = self.config.identifier();
        let mut taken = BTreeSet::new();
        let mut offer = |tool: &Tool| {
            let schema = serde_json::Value::Object((*tool.input_schema).clone());
            let own = format!("{}-{}", self.config.label, plain(&tool.name));
            let mut name = own.clone();
            let mut number = 1;
            while !taken.insert(name.clone()) {
                number += 1;
                name = format!("{own}_{number}");
            }
            Offer {
                name,
                description: tool.description.clone().unwrap_or_default().into_owned(),
                schema: schema::reduced(&schema).0,
                provider: provider.clone(),
                tool: tool.name.to_string(),
            }
        };
        ready.tools.iter().map(&mut offer).collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// The servers of a workspace.
#[derive(Debug, Default)]
pub struct Servers(pub(super) Vec<Arc<Server>>);

impl Servers {
    /// Whether there is any.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// What their tools are grouped under.
    pub fn names(&self) -> Vec<String> {
        let name = |server: &Arc<Server>| server.config.identifier();
        self.0.iter().map(name).collect()
    }

    /// Starts those that sleep, and waits a moment for those that were just started for the
    /// first time.
    pub(super) async fn wake(&self) {
        for server in &self.0 {
            server.wake();
        }
        let now = Instant::now();
        // All at once: many that are slow cost no more than one.
        let waiting = self.0.iter().map(|server| {
            let first = *server.hold().first.get_or_insert(now);
            tokio::time::timeout_at(first + FIRST_WAIT, server.settled())
        });
        futures_util::future::join_all(waiting).await;
    }

    /// All tools that are there now and fit beside so many of the host.
    pub fn offers(&self, beside: usize) -> Vec<Offer> {
        let all = self.0.iter().flat_map(|server| server.offers());
        all.take(MOST_TOOLS.saturating_sub(beside)).collect()
    }

    /// What a person should know: servers that are not there, tools that are too many.
    pub fn problems(&self, beside: usize) -> Vec<String> {
        let problem = |server: &Arc<Server>| match server.state() {
            State::Failed { why, .. } => {
                Some(format!("MCP server {:?}: {why}", server.config.name))
            }
            _ => None,
        };
        let mut problems: Vec<String> = self.0.iter().filter_map(problem).collect();
        let all: usize = self.0.iter().map(|server| server.offers().len()).sum();
        if all + beside > MOST_TOOLS {
            let left_out = all + beside - MOST_TOOLS;
            problems.push(format!(
                "Cursor takes no more than {MOST_TOOLS} tools: {left_out} of MCP servers were left out"
            ));
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Servers that say nothing.
    fn silent(count: usize) -> Servers {
        let server = |number: usize| {
            let way = Way::Command {
                program: "sleep".into(),
                args: vec!["600".into()],
                env: BTreeMap::new(),
                folder: std::env::temp_dir(),
            };
            let config = ServerConfig::new(format!("s{number}"), way);
            let times = Times {
                connect: Duration::from_secs(60),
                call: Duration::from_secs(60),
            };
            Server::new(config, times, &Leash::default())
        };
        Servers((0..count).map(server).collect())
    }

    #[tokio::test(start_paused = true)]
    async fn many_slow_servers_cost_a_first_turn_no_more_than_one() {
        let servers = silent(5);
        let started = Instant::now();
        servers.wake().await;
        assert_eq!(started.elapsed(), FIRST_WAIT);
        servers.wake().await;
        assert_eq!(started.elapsed(), FIRST_WAIT, "and a later one nothing");
        let loading = |server: &Arc<Server>| matches!(server.state(), State::Loading);
        assert!(servers.0.iter().all(loading));
    }
}
