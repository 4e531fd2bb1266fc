// Clients whose tools are not in the table of agents: libraries, proxies, an ACP client.
import { existsSync } from "node:fs";
import { dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";

import { call } from "./conversation.mjs";

const here = dirname(fileURLToPath(import.meta.url));
const venv = (name) => join(here, ".venv/bin", name);
export const sidecar = resolve(process.env.SIDECAR ?? join(here, "../../../target/debug/cursor-sidecar"));

/** What each asks for, and the steps that answer it. */
export const libraries = {
  aider: {
    command: join(here, ".venv-aider/bin/aider"),
    steps: () => [{ text: "a.txt\n```\n<<<<<<< SEARCH\nbeta\n=======\ndelta\n>>>>>>> REPLACE\n```\n" }],
    prepare: ({ url, token }) => ({
      args: ["--model", "openai/composer-2", "--edit-format", "diff", "--yes-always", "--no-git", "--no-check-update",
        "--no-show-model-warnings", "--analytics-disable", "--no-auto-lint", "--message", "go", "a.txt"],
      env: { OPENAI_API_BASE: url, OPENAI_API_KEY: token, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  },
  "openai and anthropic (Python, strict)": {
    command: venv("python"),
    isReady: () => existsSync(venv("litellm")),
    steps: () => [
      { thinking: "Hm." }, { thinking_done: 10 }, { text: "Let me look. " },
      call("t1", "view_file", { file: "a.txt" }), { text: "Done." },
    ],
    isTextOnly: true,
    prepare: ({ url, token }) => ({
      args: [join(here, "strict.py")], env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token },
    }),
  },
  "litellm proxy": {
    command: venv("python"),
    isReady: () => existsSync(venv("litellm")),
    steps: () => [call("t1", "view_file", { file: "a.txt" }), { text: "Done." }],
    isTextOnly: true,
    runs: 1,
    prepare: ({ url, token }) => ({
      args: [join(here, "proxy.py")],
      env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: token, LITELLM_LOCAL_MODEL_COST_MAP: "True" },
    }),
  },
  // An ACP client, which starts `cursor-sidecar acp` itself; Cursor's native tools are executed there.
  acpx: {
    command: join(here, "node_modules/.bin/acpx"),
    steps: () => [
      { exec: { readArgs: { path: "$WS/a.txt", toolCallId: "t1" } }, timeout_ms: 60000 },
      { exec: { writeArgs: { path: "$WS/a.txt", fileText: "alpha\ndelta\ngamma\n", toolCallId: "t2" } }, timeout_ms: 60000 },
      { text: "Done." },
    ],
    runs: 1,
    model: "gpt-5.1",
    prepare: ({ backend, state }) => ({
      args: ["--approve-all", "--model", "gpt-5.1", "--agent", `${sidecar} acp`, "exec", "go"],
      env: { CURSOR_BACKEND_URL: backend, CURSOR_API_KEY: "crsr_test", PI_CURSOR_STATE_DIR: join(state, "acp") },
    }),
  },
  litellm: {
    command: venv("python"),
    steps: () => [{ text: "Done." }],
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
