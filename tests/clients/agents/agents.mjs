// Coding agents, unmodified: how each is configured and started.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { call } from "./conversation.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const bin = (name) => join(here, "node_modules/.bin", name);

/** What Claude Code executes without a question. */
const TOOLS = "Bash,Read,Edit,Write,Glob,Grep";

/**
 * The agents: the calls of their own tools that read, run and edit; how they are started with a prompt,
 * and with the next prompt of the same conversation (`next`).
 */
export const agents = {
  opencode: {
    hasWindows: true,
    native: { exitCode: 0 }, // It does not report exit codes.
    command: join(here, "../opencode/node_modules", `opencode-${process.platform}-${process.arch}`, "bin/opencode"),
    calls: ({ file, count }) => [
      call("t1", "read", { filePath: file }),
      call("t2", "bash", { command: count, description: "Counts lines" }),
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
      const args = ["run", "--model", "cursor/composer-2"];
      return {
        args: [...args, "go"], next: [...args, "--continue", "more"], env: { OPENCODE_DISABLE_MODELS_FETCH: "1" },
      };
    },
  },
  codex: {
    hasWindows: true,
    command: bin("codex"),
    calls: ({ file, count }) => [
      call("t1", "exec_command", { cmd: `cat ${file}` }),
      call("t2", "exec_command", { cmd: count }),
      call("t3", "exec_command", { cmd: `sed -i.bak s/beta/delta/ ${file}` }),
    ],
    prepare: ({ home, url, token }) => {
      mkdirSync(join(home, ".codex"), { recursive: true });
      writeFileSync(join(home, ".codex/config.toml"), [
        'model = "composer-2"', 'model_provider = "cursor"', "[model_providers.cursor]",
        'name = "Cursor"', `base_url = "${url}"`, 'env_key = "CURSOR_GATEWAY_TOKEN"', 'wire_api = "responses"',
      ].join("\n"));
      const args = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"];
      return {
        args: ["exec", ...args, "go"],
        next: ["exec", "resume", "--last", ...args, "more"],
        env: { CURSOR_GATEWAY_TOKEN: token, CODEX_HOME: join(home, ".codex") },
      };
    },
  },
  claude: {
    hasWindows: true,
    command: bin("claude"),
    calls: ({ file, count }) => [
      call("t1", "Read", { file_path: file }),
      call("t2", "Bash", { command: count, description: "Counts lines" }),
      call("t3", "Edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ root, token }) => ({
      args: ["-p", "go", "--permission-mode", "acceptEdits", "--allowedTools", TOOLS],
      next: ["-p", "more", "--continue", "--permission-mode", "acceptEdits", "--allowedTools", TOOLS],
      env: {
        ANTHROPIC_BASE_URL: root, ANTHROPIC_AUTH_TOKEN: token, ANTHROPIC_MODEL: "composer-2",
        ANTHROPIC_DEFAULT_HAIKU_MODEL: "composer-2", CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1", DISABLE_AUTOUPDATER: "1",
      },
    }),
  },
  qwen: {
    hasOnePrompt: true, // Resumed, it changes its first message, so the history goes to a new conversation.
    command: bin("qwen"),
    calls: ({ file, count }) => [
      call("t1", "read_file", { file_path: file }),
      call("t2", "run_shell_command", { command: count, description: "Counts lines", is_background: false }),
      call("t3", "edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ url, token }) => ({
      args: ["-p", "go", "--approval-mode", "yolo", "--auth-type", "openai"],
      env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token, OPENAI_MODEL: "composer-2" },
    }),
  },
  cline: {
    hasOnePrompt: true,
    command: bin("cline"),
    calls: ({ file, count }) => [
      call("t1", "read_files", { files: [{ path: file }] }),
      call("t2", "run_commands", { commands: [count] }),
      call("t3", "editor", { path: file, old_text: "beta", new_text: "delta" }),
    ],
    prepare: ({ home, url, token }) => {
      const env = { PATH: process.env.PATH, HOME: home };
      spawnSync(bin("cline"), ["auth", "-p", "openai-compatible", "-b", url, "-k", token, "-m", "composer-2"], { env, timeout: 60000 });
      return { args: ["--auto-approve", "true", "-t", "120", "change the file"], env: {} };
    },
  },
  continue: {
    native: { exitCode: 0 }, // It reports no exit code of a command that printed nothing on stderr.
    command: bin("cn"),
    calls: ({ file, count }) => [
      call("t1", "Read", { filepath: file }),
      call("t2", "Bash", { command: count }),
      call("t3", "Edit", { file_path: file, old_string: "beta", new_string: "delta" }),
    ],
    prepare: ({ home, url, token }) => {
      mkdirSync(join(home, ".continue"), { recursive: true });
      writeFileSync(join(home, ".continue/config.yaml"), [
        "name: Cursor", "version: 1.0.0", "schema: v1", "models:", "  - name: Cursor", "    provider: openai",
        "    model: composer-2", `    apiBase: ${url}`, `    apiKey: ${token}`, "    roles: [chat, edit, apply]",
        "    capabilities: [tool_use]",
      ].join("\n"));
      const args = ["--auto", "--config", join(home, ".continue/config.yaml")];
      return {
        args: ["-p", "go", ...args],
        next: ["-p", "more", "--resume", ...args],
        env: { CONTINUE_TELEMETRY_ENABLED: "0", CONTINUE_CLI_DISABLE_COMMIT_SIGNATURE: "1" },
      };
    },
  },
};
