// Coding agents, unmodified, against the gateway and the simulated backend: `make clients`.
//
// Each agent gets one prompt. The simulator then calls the agent's own tools, which must read a
// file, run a command and edit the file for real, and all in one run. Prints a table; fails if an
// agent that is installed does not do that.
import { spawn, spawnSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

const here = dirname(fileURLToPath(import.meta.url));
const sidecar = resolve(process.env.SIDECAR ?? join(here, "../../../target/debug/cursor-sidecar"));
const bin = (name) => join(here, "node_modules/.bin", name);
const venv = (name) => join(here, ".venv/bin", name);
const only = process.argv.slice(2);

/** Starts a process of ours and returns it with its ready line. */
async function start(args, env, cwd) {
  const child = spawn(sidecar, args, { env: { PATH: process.env.PATH, ...env }, cwd, stdio: ["pipe", "pipe", "ignore"] });
  const [line] = await new Promise((done, fail) => {
    createInterface({ input: child.stdout }).once("line", (line) => done([line]));
    child.once("exit", () => fail(new Error(`${args[0]} did not start`)));
  });
  return { child, ready: JSON.parse(line) };
}

/** One call of a tool, as a step of the simulator. */
const call = (id, tool, args) => ({
  exec: { mcpArgs: { name: `pi__${tool}`, providerIdentifier: "pi", toolName: `pi__${tool}`, toolCallId: id, args } },
  timeout_ms: 60000,
});

const toml = (value) =>
  Array.isArray(value) ? `[${value.map(toml).join(", ")}]`
  : value && typeof value === "object"
    ? `{ ${Object.entries(value).map(([name, field]) => `${name} = ${toml(field)}`).join(", ")} }`
    : JSON.stringify(value);

/** The agents: how they are started, and their tools' calls for reading, running and editing. */
const agents = {
  opencode: {
    command: join(here, "../opencode/node_modules", `opencode-${process.platform}-${process.arch}`, "bin/opencode"),
    calls: (file) => [
      call("t1", "read", { filePath: file }),
      call("t2", "bash", { command: "wc -l a.txt > lines.txt", description: "Counts lines" }),
      call("t3", "edit", { filePath: file, oldString: "beta", newString: "delta" }),
    ],
    prepare: ({ home, url, token }) => {
      const folder = join(home, ".config/opencode");
      mkdirSync(folder, { recursive: true });
      writeFileSync(join(folder, "opencode.json"), JSON.stringify({
        model: "cursor/composer-2", small_model: "cursor/composer-2", autoupdate: false, share: "disabled",
        permission: { edit: "allow", bash: "allow", external_directory: "allow" },
        provider: { cursor: {
          npm: "@ai-sdk/openai-compatible", name: "Cursor",
          options: { baseURL: url, apiKey: token }, models: { "composer-2": { tool_call: true } },
        } },
      }));
      return { args: ["run", "--model", "cursor/composer-2", "go"], env: { OPENCODE_DISABLE_MODELS_FETCH: "1" } };
    },
  },
  codex: {
    command: bin("codex"),
    calls: (file) => [
      call("t1", "exec_command", { cmd: `cat ${file}` }),
      call("t2", "exec_command", { cmd: "wc -l a.txt > lines.txt" }),
      call("t3", "exec_command", { cmd: `sed -i.bak s/beta/delta/ ${file}` }),
    ],
    prepare: ({ home, url, token }) => {
      mkdirSync(join(home, ".codex"), { recursive: true });
      writeFileSync(join(home, ".codex/config.toml"), [
        'model = "composer-2"', 'model_provider = "cursor"', "[model_providers.cursor]",
        'name = "Cursor"', `base_url = "${url}"`, 'env_key = "CURSOR_GATEWAY_TOKEN"', 'wire_api = "responses"',
      ].join("\n"));
      return {
        args: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"],
        env: { CURSOR_GATEWAY_TOKEN: token, CODEX_HOME: join(home, ".codex") },
      };
    },
  },
  claude: {
    command: bin("claude"),
    calls: (file) => [
      call("t1", "Read", { file_path: file }),
      call("t2", "Bash", { command: "wc -l a.txt > lines.txt", description: "Counts lines" }),
      call("t3", "Edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ root, token }) => ({
      args: ["-p", "go", "--permission-mode", "acceptEdits", "--allowedTools", "Bash,Read,Edit"],
      env: {
        ANTHROPIC_BASE_URL: root, ANTHROPIC_AUTH_TOKEN: token, ANTHROPIC_MODEL: "composer-2",
        ANTHROPIC_DEFAULT_HAIKU_MODEL: "composer-2", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1",
      },
    }),
  },
  qwen: {
    command: bin("qwen"),
    calls: (file) => [
      call("t1", "read_file", { file_path: file }),
      call("t2", "run_shell_command", { command: "wc -l a.txt > lines.txt", description: "Counts lines", is_background: false }),
      call("t3", "edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ url, token }) => ({
      args: ["-p", "go", "--approval-mode", "yolo", "--auth-type", "openai"],
      env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token, OPENAI_MODEL: "composer-2" },
    }),
  },
  cline: {
    command: bin("cline"),
    calls: (file) => [
      call("t1", "read_files", { files: [{ path: file }] }),
      call("t2", "run_commands", { commands: ["wc -l a.txt > lines.txt"] }),
      call("t3", "editor", { path: file, old_text: "beta", new_text: "delta" }),
    ],
    prepare: ({ home, url, token }) => {
      const env = { PATH: process.env.PATH, HOME: home };
      spawnSync(bin("cline"), ["auth", "-p", "openai-compatible", "-b", url, "-k", token, "-m", "composer-2"], { env, timeout: 60000 });
      return { args: ["--auto-approve", "true", "-t", "120", "change the file"], env: {} };
    },
  },
  continue: {
    command: bin("cn"),
    calls: (file) => [
      call("t1", "Read", { filepath: file }),
      call("t2", "Bash", { command: "wc -l a.txt > lines.txt" }),
      call("t3", "Edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ home, url, token }) => {
      mkdirSync(join(home, ".continue"), { recursive: true });
      writeFileSync(join(home, ".continue/config.yaml"), [
        "name: Cursor", "version: 1.0.0", "schema: v1", "models:", "  - name: Cursor", "    provider: openai",
        "    model: composer-2", `    apiBase: ${url}`, `    apiKey: ${token}`, "    roles: [chat, edit, apply]",
        "    capabilities: [tool_use]",
      ].join("\n"));
      return {
        args: ["-p", "go", "--auto", "--config", join(home, ".continue/config.yaml")],
        env: { CONTINUE_TELEMETRY_ENABLED: "0", CONTINUE_CLI_DISABLE_COMMIT_SIGNATURE: "1" },
      };
    },
  },
  aider: {
    command: join(here, ".venv-aider/bin/aider"),
    calls: () => [],
    text: "a.txt\n```\n<<<<<<< SEARCH\nbeta\n=======\ndelta\n>>>>>>> REPLACE\n```\n",
    prepare: ({ url, token }) => ({
      args: ["--model", "openai/composer-2", "--edit-format", "diff", "--yes-always", "--no-git", "--no-check-update",
        "--no-show-model-warnings", "--analytics-disable", "--no-auto-lint", "--message", "go", "a.txt"],
      env: { OPENAI_API_BASE: url, OPENAI_API_KEY: token, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  },
  "openai and anthropic (Python, strict)": {
    command: venv("python"),
    isReady: () => existsSync(venv("litellm")),
    calls: () => [],
    steps: () => [{ thinking: "Hm." }, { thinking_done: 10 }, { text: "Let me look. " }, call("t1", "view_file", { file: "a.txt" })],
    isTextOnly: true,
    prepare: ({ url, token }) => ({
      args: [join(here, "strict.py")], env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token },
    }),
  },
  "litellm proxy": {
    command: venv("python"),
    isReady: () => existsSync(venv("litellm")),
    calls: () => [],
    steps: () => [call("t1", "view_file", { file: "a.txt" })],
    isTextOnly: true,
    runs: 1,
    prepare: ({ url, token }) => ({
      args: [join(here, "proxy.py")],
      env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  },
  // An ACP client, which starts `cursor-sidecar acp` itself; Cursor's native tools are executed there.
  acpx: {
    command: bin("acpx"),
    calls: () => [],
    steps: (file) => [
      { exec: { readArgs: { path: file, toolCallId: "t1" } }, timeout_ms: 60000 },
      { exec: { writeArgs: { path: file, fileText: "alpha\ndelta\ngamma\n", toolCallId: "t2" } }, timeout_ms: 60000 },
    ],
    runs: 1,
    prepare: ({ backend, state }) => ({
      args: ["--approve-all", "--agent", `${sidecar} acp`, "exec", "go"],
      env: { CURSOR_BACKEND_URL: backend, CURSOR_API_KEY: "crsr_test", PI_CURSOR_STATE_DIR: join(state, "acp") },
    }),
  },
  litellm: {
    command: venv("python"),
    calls: () => [],
    text: "Done.",
    isTextOnly: true,
    isReady: () => existsSync(venv("litellm")),
    prepare: ({ url, token }) => ({
      args: ["-c", `import litellm
answer = litellm.completion(model="openai/composer-2", api_base=${JSON.stringify(url)}, api_key=${JSON.stringify(token)}, messages=[{"role": "user", "content": "go"}])
print(answer.choices[0].message.content)`],
      env: { LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  },
};

async function run(name) {
  const agent = agents[name];
  if (!existsSync(agent.command) || agent.isReady?.() === false) return { name, result: "not installed" };
  const place = mkdtempSync(join(tmpdir(), "clients-"));
  const [home, work, state] = ["home", "work", "state"].map((part) => join(place, part));
  for (const folder of [home, work, state]) mkdirSync(folder);
  const file = join(work, "a.txt");
  writeFileSync(file, "alpha\nbeta\ngamma\n");
  const context = { exec: { requestContextArgs: {} } };
  const steps = [context, ...(agent.steps ?? agent.calls)(file), { text: agent.text ?? "Done." }, { usage: {} }, { checkpoint: "auto" }, { end: true }];
  const scenario = join(place, "agent.toml");
  writeFileSync(scenario, `name = "agent"\nattempts = "all"\n[[run]]\nsteps = ${toml(steps)}\n`);
  const sim = await start(["sim", "--exit-with-stdin", "--http2", "force", "--scenario", scenario], {}, place);
  const gateway = await start(["gateway"], {
    HOME: home, PI_CURSOR_STATE_DIR: state, CURSOR_BACKEND_URL: sim.ready.url, CURSOR_API_KEY: "crsr_test",
  }, place);
  try {
    const token = readFileSync(gateway.ready.tokenFile, "utf8").trim();
    const url = gateway.ready.url;
    const { args, env } = agent.prepare({ home, state, backend: sim.ready.url, url, token, root: url.replace(/\/v1$/, "") });
    const started = Date.now();
    const child = spawnSync(agent.command, args, {
      cwd: work, encoding: "utf8", timeout: 180000, input: "", killSignal: "SIGKILL",
      env: { PATH: `${dirname(process.execPath)}:${process.env.PATH}`, HOME: home, TERM: "dumb", ...env },
    });
    const seconds = ((Date.now() - started) / 1000).toFixed(1);
    const recording = await (await fetch(`${sim.ready.url}/__sim/recording`)).json();
    const tools = agent.calls(file).length;
    const main = recording.frames.filter((frame) => {
      const request = frame.json?.runRequest;
      return request && (tools === 0 || request.mcpTools?.mcpTools?.length);
    });
    const sent = recording.frames.filter((frame) => frame.json?.execClientMessage?.mcpResult?.success);
    const contexts = recording.frames.filter((frame) => frame.json?.execClientMessage?.requestContextResult);
    const problems = [];
    // The model is told the folder of the agent, which it names somewhere in its prompt.
    const isPlace = (frame) => JSON.stringify(frame.json).includes(JSON.stringify(work).slice(1));
    if (tools && !contexts.some(isPlace)) problems.push("another folder");
    if (child.status !== 0) problems.push(`exit ${child.status ?? child.signal}`);
    if (!agent.isTextOnly && !readFileSync(file, "utf8").includes("delta")) problems.push("no edit");
    if (tools && !existsSync(join(work, "lines.txt"))) problems.push("no command");
    if (tools && sent.length !== tools) problems.push(`${sent.length} results`);
    // A client without tools of its own may ask more than once.
    if ((tools || agent.runs) && main.length !== 1) problems.push(`${main.length} runs`);
    if (problems.length) {
      console.error(`--- ${name}: ${problems.join(", ")}\n${child.stdout?.slice(-3000)}\n${child.stderr?.slice(-3000)}`);
      if (process.env.KEEP) console.error(JSON.stringify(recording.verdicts), place);
    }
    return { name, tools, runs: main.length, seconds, result: problems.length ? problems.join(", ") : "ok" };
  } finally {
    gateway.child.kill();
    sim.child.kill();
    if (!process.env.KEEP) rmSync(place, { recursive: true, force: true });
  }
}

const rows = [];
for (const name of Object.keys(agents)) {
  if (!only.length || only.includes(name)) rows.push(await run(name));
}
console.table(rows);
process.exit(rows.some(({ result }) => !["ok", "not installed"].includes(result)) ? 1 : 0);
