//! Every block of code in README.md and docs/: its commands are executed against the simulator, its
//! settings are used, or it says why not.
//!
//! | block | what happens |
//! |---|---|
//! | `console` | each line that begins with `$` is executed by a shell and has to succeed; the lines after it are its output, in which `…` stands for anything |
//! | `toml` | a scenario is played, other settings are used as `config.toml` |
//! | `json`, `lua`, `elisp` | what it starts has to be an agent that answers `initialize` of ACP; requests are sent to the sidecar and have to succeed |
//! | any, after `<!-- gateway --print-config NAME -->` | compared with what that command prints, of a user `me` |
//! | any, after `<!-- not run here: REASON -->` | not executed |
//! | `text`, `mermaid` | output and pictures: nothing to execute |
//!
//! `UPDATE_DOCS=1` replaces the blocks that `--print-config` prints.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use regex::Regex;
use serde_json::{Value as Json, json};
use tempfile::TempDir;

use test_support::scenario::document;
use test_support::sidecar::SidecarProcess;
use test_support::simulator::{Simulator, Transport};
use test_support::{binary, root};

const PRINTED: &str = "gateway --print-config ";
const NOT_RUN: &str = "not run here: ";
/// The home directory in the documentation.
const HOME: &str = "/home/me";

/// A fenced block of code.
#[derive(Debug)]
struct Block {
    file: PathBuf,
    /// The line of its fence, counted from 1.
    line: usize,
    language: String,
    text: String,
    /// The text of the comment directly before it.
    remark: String,
}

fn documents() -> Vec<PathBuf> {
    let docs = std::fs::read_dir(root().join("docs")).unwrap();
    let docs = docs.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = docs
        .filter(|path| path.extension().is_some_and(|it| it == "md"))
        .collect();
    files.sort();
    files.insert(0, root().join("README.md"));
    files
}

fn blocks(file: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut blocks = Vec::new();
    let mut open: Option<Block> = None;
    let mut last = "";
    for (index, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text.push_str(&format!("{line}\n")),
            (None, Some(language)) => {
                let remark = last.strip_prefix("<!-- ").unwrap_or_default();
                open = Some(Block {
                    file: file.to_owned(),
                    line: index + 1,
                    language: language.to_owned(),
                    text: String::new(),
                    remark: remark.trim_end_matches(" -->").to_owned(),
                });
            }
            (None, None) => last = line,
        }
        if line.is_empty() && open.is_none() {
            last = "";
        }
    }
    assert!(open.is_none(), "{} has an open block", file.display());
    blocks
}

/// A machine of a user: a home, a working directory and a simulated Cursor.
struct Machine {
    folder: TempDir,
    simulator: Simulator,
}

impl Machine {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(folder.path().join("bin")).unwrap();
        let program = folder.path().join("bin/cursor-sidecar");
        std::os::unix::fs::symlink(binary(), program).unwrap();
        // The scenarios that the documentation names.
        std::os::unix::fs::symlink(root().join("tests"), folder.path().join("tests")).unwrap();
        std::fs::write(folder.path().join("question.txt"), "What is a monad?").unwrap();
        let steps =
            r#"{ text = "Hello." }, { checkpoint = "auto" }, { usage = {} }, { end = true }"#;
        let scenario = folder.path().join("scenario.toml");
        std::fs::write(&scenario, document("documentation", &[steps])).unwrap();
        let simulator = Simulator::with(Transport::Http1, &scenario);
        Self { folder, simulator }
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        let path = format!("{}/bin:/usr/bin:/bin", self.folder.path().display());
        command
            .args(arguments)
            .current_dir(self.folder.path())
            .env_clear()
            .env("PATH", path)
            .env("HOME", self.folder.path())
            .env("CURSOR_BACKEND_URL", &self.simulator.url)
            .env("CURSOR_WEBSITE_URL", &self.simulator.url)
            .env("CURSOR_API_KEY", "crsr_test");
        command
    }

    /// Executes a command line. A server is ended after its first line.
    fn execute(&self, line: &str) -> Result<String, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let serves = words.contains(&"gateway") && !line.contains("--print-config");
        if serves || words.get(1) == Some(&"sim") {
            return self.serve(&line.replace("--port 4141", "--port 0"));
        }
        let output = self.command("sh", &["-c", line]).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        match output.status.code() {
            Some(0) => Ok(format!("{stdout}{stderr}")),
            code => Err(format!("exit code {code:?}: {stdout}{stderr}")),
        }
    }

    fn serve(&self, line: &str) -> Result<String, String> {
        let mut command = self.command("sh", &["-c", &format!("exec {line}")]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        command.stderr(Stdio::piped());
        let mut server = KilledOnDrop(command.spawn().unwrap());
        let mut first = String::new();
        let mut stdout = BufReader::new(server.0.stdout.take().unwrap());
        stdout.read_line(&mut first).unwrap();
        if first.is_empty() {
            let mut problem = String::new();
            let mut stderr = server.0.stderr.take().unwrap();
            stderr.read_to_string(&mut problem).unwrap();
            return Err(format!("did not start: {problem}"));
        }
        Ok(first)
    }

    /// Sends requests to the sidecar, one after the other.
    fn converse(&self, requests: &[&Json]) -> Result<(), String> {
        let state = self.folder.path().join("state");
        let mut host = SidecarProcess::start(&[
            ("CURSOR_BACKEND_URL", &self.simulator.url),
            ("CURSOR_API_KEY", "crsr_test"),
            ("PI_CURSOR_STATE_DIR", state.to_str().unwrap()),
        ]);
        for request in requests {
            host.send(request);
            let answer = loop {
                let message = host.receive();
                if message["id"] == request["id"] {
                    break message;
                }
            };
            if answer.get("result").is_none() || answer["result"]["stopReason"] == "error" {
                return Err(format!("{} is answered by {answer}", request["method"]));
            }
        }
        Ok(())
    }

    /// Starts an agent and asks it to initialize.
    fn initialize(&self, words: &[String]) -> Result<(), String> {
        let arguments: Vec<&str> = words[1..].iter().map(String::as_str).collect();
        let mut command = self.command(
            &format!("{}/bin/{}", self.folder.path().display(), words[0]),
            &arguments,
        );
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut agent = KilledOnDrop(
            command
                .stderr(Stdio::null())
                .spawn()
                .map_err(|error| error.to_string())?,
        );
        let request = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}});
        let mut stdin = agent.0.stdin.take().unwrap();
        writeln!(stdin, "{request}").unwrap();
        let mut answer = String::new();
        BufReader::new(agent.0.stdout.take().unwrap())
            .read_line(&mut answer)
            .unwrap();
        match serde_json::from_str::<Json>(&answer) {
            Ok(answer) if answer["result"]["protocolVersion"] == 1 => Ok(()),
            _ => Err(format!("no agent answers: {answer:?}")),
        }
    }
}

/// A process that ends with the test.
struct KilledOnDrop(Child);

impl Drop for KilledOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether a documented line stands for a line of output.
fn describes(documented: &str, printed: &str) -> bool {
    let pieces: Vec<String> = documented.split('…').map(regex::escape).collect();
    Regex::new(&format!("^{}$", pieces.join(".*")))
        .unwrap()
        .is_match(printed)
}

fn check_console(machine: &Machine, text: &str) -> Result<(), String> {
    let mut printed: Option<String> = None;
    for line in text.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            let result = machine.execute(command);
            printed = Some(result.map_err(|problem| format!("`{command}`: {problem}"))?);
            continue;
        }
        let Some(printed) = &printed else {
            return Err(format!("`{line}` is output of no command; use `text`"));
        };
        if line != "…" && !printed.lines().any(|other| describes(line, other)) {
            return Err(format!("`{line}` is not printed; what is:\n{printed}"));
        }
    }
    printed.map(drop).ok_or_else(|| "no command".to_owned())
}

fn check_toml(machine: &Machine, text: &str) -> Result<(), String> {
    let table: toml::Table = toml::from_str(text).map_err(|error| error.to_string())?;
    if table.contains_key("run") {
        let file = machine.folder.path().join("documented.toml");
        std::fs::write(&file, text).unwrap();
        return machine
            .serve(&format!(
                "cursor-sidecar sim --scenario '{}'",
                file.display()
            ))
            .map(drop);
    }
    let file = machine.folder.path().join("config.toml");
    std::fs::write(&file, text).unwrap();
    let mut doctor = machine.command(binary(), &["doctor", "--offline", "--json"]);
    let output = doctor.env("PI_CURSOR_CONFIG", &file).output().unwrap();
    let page: Json = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let findings = page["findings"].as_array().unwrap();
    match findings.iter().find(|finding| finding["ok"] != true) {
        Some(finding) => Err(finding["text"].to_string()),
        None => {
            let from_file = page["settings"].as_array().unwrap().iter();
            let from_file = from_file.filter(|setting| setting["source"] == "config.toml");
            let count = from_file.count();
            (count == table.len())
                .then_some(())
                .ok_or(format!("{count} of {} settings are used", table.len()))
        }
    }
}

/// Returns the commands of ACP agents in an editor's settings.
fn agents(json: &Json) -> Vec<Vec<String>> {
    let servers = json["agent_servers"].as_object().into_iter().flatten();
    let commands = servers.map(|(_, server)| {
        let arguments = server["args"].as_array().into_iter().flatten();
        let words = std::iter::once(&server["command"]).chain(arguments);
        words
            .map(|word| word.as_str().unwrap().to_owned())
            .collect()
    });
    commands.collect()
}

fn check_json(machine: &Machine, text: &str) -> Result<(), String> {
    let values = serde_json::Deserializer::from_str(text).into_iter::<Json>();
    let values: Result<Vec<Json>, _> = values.collect();
    let values = values.map_err(|error| error.to_string())?;
    for agent in values.iter().flat_map(agents) {
        machine.initialize(&agent)?;
    }
    let is_request = |value: &&Json| value["method"].is_string() && !value["id"].is_null();
    let requests: Vec<&Json> = values.iter().filter(is_request).collect();
    if requests.is_empty() {
        return Ok(());
    }
    machine.converse(&requests)
}

/// Starts the program that is written as strings in braces or parentheses.
fn check_listed(machine: &Machine, text: &str) -> Result<(), String> {
    let list = Regex::new(r#"[{(]\s*"cursor-sidecar"[^})]*[})]"#).unwrap();
    let word = Regex::new(r#""([^"]*)""#).unwrap();
    let found = list.find(text).ok_or("no command")?;
    let words: Vec<String> = word
        .captures_iter(found.as_str())
        .map(|it| it[1].to_owned())
        .collect();
    machine.initialize(&words)
}

/// Returns what `gateway --print-config` prints for a user `me`.
fn printed(client: &str) -> String {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(binary())
        .args(["gateway", "--port", "4141", "--print-config", client])
        .env_clear()
        .env("HOME", home.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{client}: {output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.replace(home.path().to_str().unwrap(), HOME)
}

fn update(block: &Block, wanted: &str) {
    let page = std::fs::read_to_string(&block.file).unwrap();
    let fence = format!("<!-- {} -->\n```{}\n", block.remark, block.language);
    let replaced = page.replacen(
        &format!("{fence}{}", block.text),
        &format!("{fence}{wanted}"),
        1,
    );
    std::fs::write(&block.file, replaced).unwrap();
}

fn check(machine: &Machine, block: &Block) -> Result<(), String> {
    if let Some(reason) = block.remark.strip_prefix(NOT_RUN) {
        return (reason.len() > 10)
            .then_some(())
            .ok_or("no reason".to_owned());
    }
    if let Some(client) = block.remark.strip_prefix(PRINTED) {
        let wanted = printed(client);
        if wanted != block.text && std::env::var_os("UPDATE_DOCS").is_some() {
            update(block, &wanted);
            return Ok(());
        }
        let is_equal = wanted == block.text;
        return is_equal.then_some(()).ok_or(format!(
            "`UPDATE_DOCS=1` corrects it; printed is:\n{wanted}"
        ));
    }
    match block.language.as_str() {
        "text" | "mermaid" => Ok(()),
        "console" => check_console(machine, &block.text),
        "toml" => check_toml(machine, &block.text),
        "json" => check_json(machine, &block.text),
        "lua" | "elisp" => check_listed(machine, &block.text),
        "" => Err("say what it is: `console`, `toml`, `json`, or `text` for output".to_owned()),
        other => Err(format!(
            "`{other}` cannot be executed by this test; add `<!-- {NOT_RUN}… -->`"
        )),
    }
}

#[test]
fn every_block_of_the_documentation_is_executed_or_says_why_not() {
    let mut problems = Vec::new();
    let mut executed = 0;
    for file in documents() {
        let machine = Machine::new();
        for block in blocks(&file) {
            let name = file.strip_prefix(root()).unwrap().display();
            match check(&machine, &block) {
                Ok(()) => executed += usize::from(!block.remark.starts_with(NOT_RUN)),
                Err(problem) => problems.push(format!("{name}:{}: {problem}", block.line)),
            }
        }
    }
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    assert!(executed > 20, "only {executed} blocks were found");
}

/// Markdown displays indented lines as code too; they would not be executed.
#[test]
fn no_code_is_indented_instead_of_fenced() {
    let indented = Regex::new(r"(?m)^\n {4}[^ \-*|0-9].*$").unwrap();
    for file in documents() {
        let text = std::fs::read_to_string(&file).unwrap();
        let outside: Vec<&str> = text.split("```").step_by(2).collect();
        let found = outside.iter().find_map(|part| indented.find(part));
        assert!(
            found.is_none(),
            "{}: {:?}",
            file.display(),
            found.map(|it| it.as_str())
        );
    }
}

#[test]
fn every_method_has_an_example() {
    let page = std::fs::read_to_string(root().join("docs/rpc.md")).unwrap();
    let about = SidecarProcess::start(&[]).initialize();
    let methods = about["result"]["methods"].as_array().unwrap();
    let has_example = |method: &str| page.contains(&format!(r#""method":"{method}""#));
    let missing: Vec<&str> = (methods.iter().map(|method| method.as_str().unwrap()))
        .filter(|method| !has_example(method))
        .collect();
    assert_eq!(missing, [""; 0]);
    assert!(methods.len() > 15, "{methods:?}");
}

/// A client without settings in the page is missing there.
#[test]
fn every_client_of_the_gateway_is_in_the_page_about_editors() {
    let page = std::fs::read_to_string(root().join("docs/editors.md")).unwrap();
    let help = Command::new(binary())
        .args(["gateway", "--help"])
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let listed = help.split("- ").skip(1);
    let clients: Vec<&str> = listed
        .filter_map(|part| part.split_once(':'))
        .map(|(name, _)| name)
        .collect();
    let clients = clients
        .into_iter()
        .filter(|name| name.chars().all(|it| it.is_ascii_lowercase()));
    let clients: Vec<&str> = clients.collect();
    assert!(clients.len() > 8, "{help}");
    for client in clients {
        let remark = format!("<!-- {PRINTED}{client} -->");
        assert!(page.contains(&remark), "{client} is not in docs/editors.md");
    }
}

/// A name in backticks with several underscores is that of a test. It may end with `…`.
#[test]
fn every_test_that_the_documentation_names_exists() {
    let list = Command::new("git")
        .args(["ls-files", "*.rs"])
        .current_dir(root())
        .output()
        .unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    let sources = list
        .lines()
        .map(|file| std::fs::read_to_string(root().join(file)).unwrap());
    let sources: String = sources.collect();
    let code = Regex::new("`([^`\n]+)`").unwrap();
    let name = Regex::new("[a-z0-9]+(_[a-z0-9]+){4,}").unwrap();
    let mut missing = Vec::new();
    let mut found = 0;
    for page in [
        "recovery-tests.md",
        "security.md",
        "seed-audit.md",
        "bridge.md",
    ] {
        let text = std::fs::read_to_string(root().join("docs").join(page)).unwrap();
        for quoted in code.captures_iter(&text) {
            for test in name.find_iter(&quoted[1]) {
                found += 1;
                if !sources.contains(&format!("fn {}", test.as_str()))
                    && !sources.contains(&format!("{},", test.as_str()))
                {
                    missing.push(format!("{page}: {}", test.as_str()));
                }
            }
        }
    }
    assert!(missing.is_empty(), "\n{}\n", missing.join("\n"));
    assert!(found > 150, "only {found} names were found");
}
