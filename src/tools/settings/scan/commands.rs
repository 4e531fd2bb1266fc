//! Files that name commands: MCP servers and hooks. A project's are somebody else's, and run
//! only where the user trusts it.

use std::path::Path;

use super::Scan;
use crate::tools::settings::hooks::config::{self as hooks, Standing};
use crate::tools::settings::jsonc;
use crate::tools::settings::mcp::config::{self as servers, Names, ServerConfig};

/// What is done with the files of variables that servers name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EnvFiles {
    /// They are read.
    Read,
    /// They are not even opened: nobody trusts whoever named them.
    Left,
}

impl Scan<'_> {
    /// A project's servers are commands somebody else wrote.
    pub(super) fn project_servers(&mut self, workspace: &Path) {
        let file = workspace.join(".cursor/mcp.json");
        if self.place.choice.trust.covers(workspace) {
            let servers = self.server_file(&file, Some(workspace), EnvFiles::Read);
            return self.add_servers(servers);
        }
        let servers = self.server_file(&file, Some(workspace), EnvFiles::Left);
        if servers.is_empty() {
            return;
        }
        let names: Vec<&str> = servers.iter().map(|server| server.name.as_str()).collect();
        self.survey.notices.push(format!(
            "the MCP servers of {} were not started ({}), since the project is not trusted; \
             PI_CURSOR_TRUST_PROJECT={} trusts it",
            file.display(),
            names.join(", "),
            workspace.display()
        ));
    }

    /// A project's hooks only restrict, but they are commands too. Those that are not run
    /// count as a no: whoever wrote them wanted something not to happen.
    pub(super) fn project_hooks(&mut self, workspace: &Path) {
        let file = workspace.join(".cursor/hooks.json");
        let standing = match self.place.choice.trust.covers(workspace) {
            true => Standing::Trusted,
            false => Standing::Untrusted(format!(
                "{} names a hook for it, and the project is not trusted; \
                 PI_CURSOR_TRUST_PROJECT={} trusts it",
                file.display(),
                workspace.display()
            )),
        };
        let count = self.hook_file(&file, Some(workspace), workspace, &standing);
        if count > 0 && standing != Standing::Trusted {
            self.survey.notices.push(format!(
                "tools that the hooks of {} guard are refused, since the project is not \
                 trusted; PI_CURSOR_TRUST_PROJECT={} trusts it, \
                 PI_CURSOR_SETTING_SOURCES=user,mdm leaves its settings out",
                file.display(),
                workspace.display()
            ));
        }
    }

    /// Reads a file of hooks; gives how many it has.
    pub(super) fn hook_file(
        &mut self,
        file: &Path,
        within: Option<&Path>,
        folder: &Path,
        standing: &Standing,
    ) -> usize {
        if self.survey.note(file).is_none() {
            return 0;
        }
        let text = self.survey.text(file, within);
        let json = text.and_then(|text| jsonc::parse(&text).ok());
        let hooks = hooks::read(file, json.as_ref(), folder, standing);
        let problems = hooks::problems(file, json.as_ref());
        self.survey.notices.extend(problems);
        let count = hooks.len();
        self.hooks.extend(hooks);
        count
    }

    /// Of two servers with one name the first counts: the project's.
    pub(super) fn add_servers(&mut self, servers: Vec<ServerConfig>) {
        for mut server in servers {
            if !self.servers.iter().any(|known| known.name == server.name) {
                server.stand_beside(&self.servers);
                self.servers.push(server);
            }
        }
    }

    pub(super) fn server_file(
        &mut self,
        path: &Path,
        within: Option<&Path>,
        env_files: EnvFiles,
    ) -> Vec<ServerConfig> {
        let Some(text) = self.survey.text(path, within) else {
            return Vec::new();
        };
        let names = Names {
            workspace: &self.place.workspace,
            home: self.place.home.as_deref(),
            env: &|name| std::env::var(name).ok(),
        };
        let survey = &mut self.survey;
        let mut env_file = |file: &Path| match env_files {
            EnvFiles::Read => survey.text(file, None),
            EnvFiles::Left => Some(String::new()),
        };
        let (servers, problems) = match jsonc::parse(&text) {
            Ok(json) => servers::read(&json, &names, &mut env_file),
            // The words of the error could quote a password; its place cannot.
            Err(error) => {
                let problem = format!("it is no JSON (line {})", error.line());
                (Vec::new(), vec![problem])
            }
        };
        let told = problems
            .iter()
            .map(|problem| format!("{}: {problem}", path.display()));
        self.survey.notices.extend(told);
        servers
    }
}
