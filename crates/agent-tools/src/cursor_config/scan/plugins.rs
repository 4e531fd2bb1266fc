//! The user's own plugins of Cursor: one folder each, with rules, skills, MCP servers and hooks.
//!
//! Only the folders that Cursor loads by themselves are read. What a plugin's manifest adds, and
//! plugins of a marketplace, which Cursor's server names, are not.

use std::path::Path;

use serde_json::Value as Json;

use super::Scan;
use super::commands::EnvFiles;
use crate::cursor_config::hooks::config::HookTrust;
use crate::cursor_config::mcp::config::ServerConfig;
use crate::cursor_config::rules::RuleFile;
use crate::cursor_config::skills::{self, Skill};

/// The folder of the plugins in the user's home.
const FOLDER: &str = ".cursor/plugins/local";
/// The files that may name the MCP servers of a plugin; the first one that exists counts.
const SERVERS: [&str; 2] = [".mcp.json", "mcp.json"];
const HOOKS: &str = "hooks/hooks.json";
/// What the settings of a plugin write for its folder. The second one is in plugins that were made
/// for another agent.
const ROOTS: [&str; 2] = ["${CURSOR_PLUGIN_ROOT}", "${CLAUDE_PLUGIN_ROOT}"];

impl Scan<'_> {
    /// Reads the plugins of a user. Their commands run, because the user installed them.
    pub(super) fn plugins(&mut self, home: &Path) {
        let folder = home.join(FOLDER);
        for name in self.reader.names(&folder) {
            let plugin = folder.join(&name);
            // A link that leads elsewhere is no plugin, as for the official client.
            let lies_inside = match (plugin.canonicalize(), folder.canonicalize()) {
                (Ok(plugin), Ok(folder)) => plugin.starts_with(folder) && plugin.is_dir(),
                _ => false,
            };
            if lies_inside && !name.starts_with('.') {
                self.plugin(&plugin, &name);
            }
        }
    }

    fn plugin(&mut self, plugin: &Path, name: &str) {
        for path in self.below(&plugin.join("rules"), &|file| file.ends_with(".mdc")) {
            if let Some(text) = self.read(&path, Some(plugin)) {
                let rule = RuleFile::headed(&path, &text);
                self.rules
                    .extend(rule.map(|rule| rule.in_plugin(name, text)));
            }
        }
        for path in self.below(&plugin.join("skills"), &|file| file == skills::FILE) {
            if let Some(text) = self.read(&path, Some(plugin)) {
                self.skills.push(Skill::read(&path, text).in_plugin(name));
            }
        }
        // Both files are looked at, so that a turn notices one that is added.
        let files = SERVERS.map(|name| plugin.join(name));
        let texts = files
            .each_ref()
            .map(|file| self.reader.text(file, Some(plugin)));
        let mut named = files.iter().zip(texts);
        if let Some((file, text)) = named.find(|(_, text)| text.is_some()) {
            let servers = self.server_file(file, text, EnvFiles::Read, Some(plugin));
            // The official client's names, so that a plugin replaces no server of the user.
            let named = servers.into_iter().map(|server| {
                let own = format!("plugin-{name}-{}", server.name);
                ServerConfig::new(own, server.transport)
            });
            self.add_servers(named.collect());
        }
        let file = plugin.join(HOOKS);
        let text = self.reader.text(&file, Some(plugin));
        self.hook_file(&file, text, plugin, &HookTrust::Trusted, Some(plugin));
    }
}

/// Writes the plugin's folder into the texts that name it.
pub(super) fn fill_root(json: &mut Json, plugin: &Path) {
    match json {
        Json::String(text) => {
            for root in ROOTS {
                if text.contains(root) {
                    *text = text.replace(root, &plugin.to_string_lossy());
                }
            }
        }
        Json::Array(items) => items.iter_mut().for_each(|item| fill_root(item, plugin)),
        Json::Object(members) => {
            members
                .values_mut()
                .for_each(|value| fill_root(value, plugin));
        }
        Json::Null | Json::Bool(_) | Json::Number(_) => {}
    }
}
