//! Files that name commands: MCP servers and hooks. Those of a project are written by others,
//! so they run only if the user trusts the project.

use std::path::Path;

use super::Scan;
use super::plugins::fill_root;
use crate::cursor_config::consent::{Consent, HOOKS, SERVERS};
use crate::cursor_config::hooks::config as hooks;
use crate::cursor_config::hooks::config::HookTrust;
use crate::cursor_config::jsonc;
use crate::cursor_config::mcp::config as servers;
use crate::cursor_config::mcp::config::{EnvNames, ServerConfig};

/// Whether the `envFile`s of servers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvFiles {
    /// They are read.
    Read,
    /// They are not opened, because the file that names them is not trusted.
    Skip,
}

/// Whether the commands in a project's file may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum CommandTrust {
    /// They may.
    Accepted,
    /// They may not; the text says why and what the user can do about it.
    Not(String),
}

impl Scan<'_> {
    /// Reads a project's servers and hooks. Their commands are run only if the user trusts the
    /// project and has accepted the current content of the files, because others wrote them.
    pub(super) fn project_commands(&mut self, workspace: &Path) {
        let files = [SERVERS, HOOKS].map(|name| workspace.join(name));
        let texts = [0, 1].map(|at: usize| self.reader.text(&files[at], Some(workspace)));
        let [servers, hooks] = self.trust(workspace, [texts[0].as_deref(), texts[1].as_deref()]);
        let [servers_text, hooks_text] = texts;
        self.project_servers(&files[0], servers_text, &servers);
        self.project_hooks(&files[1], hooks_text, workspace, &hooks);
    }

    /// Returns whether the servers file and the hooks file may be used.
    fn trust(&mut self, workspace: &Path, texts: [Option<&str>; 2]) -> [CommandTrust; 2] {
        let names = [SERVERS, HOOKS];
        let shown = workspace.display();
        let consent = self.place.state.as_deref();
        let mut consent = consent.map(|state| Consent::read(state, workspace));
        let trusted = self.place.choice.trust.covers(workspace) || self.place.is_trusted_by_host;
        let explicit = consent.as_ref().is_some_and(Consent::is_explicit);
        let mut unrecorded = None;
        if let Some(consent) = &mut consent {
            if trusted {
                let contents = [(SERVERS, texts[0]), (HOOKS, texts[1])];
                unrecorded = consent.record_first(&contents).err();
            }
            self.reader.note(consent.file());
        }
        let accept = format!("accept it with /cursor-trust or `cursor-sidecar trust {shown}`");
        [0, 1].map(|at: usize| {
            let Some(text) = texts[at] else {
                return CommandTrust::Accepted; // there is nothing to run
            };
            if !trusted && !explicit {
                return CommandTrust::Not(format!(
                    "the project is not trusted; PI_CURSOR_TRUST_PROJECT={shown} trusts it, or \
                     {accept}"
                ));
            }
            if let Some(error) = &unrecorded {
                return CommandTrust::Not(format!(
                    "it cannot be recorded what is accepted: {error}"
                ));
            }
            match &consent {
                Some(consent) if !consent.covers(names[at], text) => CommandTrust::Not(format!(
                    "{} is not what was accepted for this project: it was changed or added \
                     since; look at it, then {accept}",
                    names[at]
                )),
                _ => CommandTrust::Accepted,
            }
        })
    }

    fn project_servers(&mut self, file: &Path, text: Option<String>, trust: &CommandTrust) {
        let CommandTrust::Not(why) = trust else {
            let servers = self.server_file(file, text, EnvFiles::Read, None);
            return self.add_servers(servers);
        };
        let servers = self.server_file(file, text, EnvFiles::Skip, None);
        if servers.is_empty() {
            return;
        }
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        self.reader.notices.push(format!(
            "the MCP servers of {} were not started ({}), because {why}",
            file.display(),
            names.join(", "),
        ));
    }

    /// Adds a project's hooks. Hooks that may not be run deny the tools they guard, because they
    /// were written to prevent something.
    fn project_hooks(
        &mut self,
        file: &Path,
        text: Option<String>,
        workspace: &Path,
        trust: &CommandTrust,
    ) {
        let standing = match trust {
            CommandTrust::Accepted => HookTrust::Trusted,
            CommandTrust::Not(why) => HookTrust::Untrusted(format!(
                "{} names a hook for it that is not run, because {why}",
                file.display()
            )),
        };
        let count = self.hook_file(file, text, workspace, &standing, None);
        if let CommandTrust::Not(why) = trust
            && count > 0
        {
            self.reader.notices.push(format!(
                "tools that the hooks of {} guard are refused, because {why}; \
                 PI_CURSOR_SETTING_SOURCES=user,mdm leaves its settings out",
                file.display(),
            ));
        }
    }

    /// Adds the hooks of a file and returns how many there are. If the file exists but `text` is
    /// `None`, every tool is denied. `plugin` is the plugin that the file belongs to.
    pub(super) fn hook_file(
        &mut self,
        file: &Path,
        text: Option<String>,
        folder: &Path,
        standing: &HookTrust,
        plugin: Option<&Path>,
    ) -> usize {
        if self.reader.note(file).is_none() {
            return 0;
        }
        let mut json = text.and_then(|text| jsonc::parse(&text).ok());
        if let (Some(json), Some(plugin)) = (&mut json, plugin) {
            fill_root(json, plugin);
        }
        let hooks = hooks::read(file, json.as_ref(), folder, standing);
        let problems = hooks::problems(file, json.as_ref());
        self.reader.notices.extend(problems);
        let count = hooks.len();
        self.hooks.extend(hooks);
        count
    }

    /// Adds servers. The first one with a name wins, so a project's server overrides the user's.
    pub(super) fn add_servers(&mut self, servers: Vec<ServerConfig>) {
        for mut server in servers {
            if !self.servers.iter().any(|known| known.name == server.name) {
                server.make_label_unique(&self.servers);
                self.servers.push(server);
            }
        }
    }

    /// Returns the servers of a file. `plugin` is the plugin that the file belongs to.
    pub(super) fn server_file(
        &mut self,
        path: &Path,
        text: Option<String>,
        env_files: EnvFiles,
        plugin: Option<&Path>,
    ) -> Vec<ServerConfig> {
        let Some(text) = text else {
            return Vec::new();
        };
        let names = EnvNames {
            workspace: &self.place.workspace,
            home: self.place.home.as_deref(),
            // The servers are child processes, and `${env:…}` names what they inherit.
            variable: &|name| std::env::var(name).ok(),
        };
        let reader = &mut self.reader;
        let mut env_file = |file: &Path| match env_files {
            EnvFiles::Read => reader.text(file, None),
            EnvFiles::Skip => Some(String::new()),
        };
        let (servers, problems) = match jsonc::parse(&text) {
            Ok(mut json) => {
                if let Some(plugin) = plugin {
                    fill_root(&mut json, plugin);
                }
                servers::read(&json, &names, &mut env_file)
            }
            Err(error) => (Vec::new(), vec![error.to_string()]),
        };
        let notices = problems
            .iter()
            .map(|problem| format!("{}: {problem}", path.display()));
        self.reader.notices.extend(notices);
        servers
    }
}
