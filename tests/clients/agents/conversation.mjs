// What the simulated backend does in a conversation with a coding agent. `$WS` is the folder that the
// request context names, so that one scenario serves several windows.

/** The file that each agent changes. Its last line differs between windows. */
export const fileText = (work) => `alpha\nbeta\n${work}\n`;

/** One call of a tool of the agent. */
export const call = (id, tool, args) => ({
  exec: { mcpArgs: { name: `pi__${tool}`, providerIdentifier: "pi", toolName: `pi__${tool}`, toolCallId: id, args } },
  timeout_ms: 60000,
});

/** One request of Cursor's own, and the typed result that it must get. */
const native = (exec, expect) => ({ exec, expect, timeout_ms: 60000 });

const contains = (text) => ({ $contains: text });

/** Cursor's own requests, which the agent's tools execute. */
export const nativeRequests = ({ exitCode = 3 } = {}) => [
  native(
    { shellStreamArgs: { command: "echo printed; exit 3", workingDirectory: "$WS", timeout: 30000, toolCallId: "n1" } },
    { shellStream: { stdout: contains("printed"), exit: { code: exitCode } } },
  ),
  native(
    { readArgs: { path: "$WS/a.txt", toolCallId: "n2" } },
    { readResult: { success: { content: contains("delta\n$WS") } } },
  ),
  native(
    { readArgs: { path: "$WS/gone.txt", toolCallId: "n3" } },
    { readResult: { fileNotFound: { path: contains("gone.txt") } } },
  ),
  native(
    { writeArgs: { path: "$WS/sub/new.txt", fileText: "one\nneedle\n", toolCallId: "n4" } },
    { writeResult: { success: { path: contains("new.txt") } } },
  ),
  native(
    { grepArgs: { pattern: "needle", path: "$WS", toolCallId: "n5" } },
    { grepResult: { success: { workspaceResults: { $WS: { content: {
      matches: [{ file: "sub/new.txt", matches: [{ lineNumber: 2, content: "needle" }] }],
    } } } } } },
  ),
  native(
    { grepArgs: { glob: "**/new.txt", outputMode: "files_with_matches", path: "$WS", toolCallId: "n6" } },
    { grepResult: { success: { workspaceResults: { $WS: { files: { files: ["sub/new.txt"] } } } } } },
  ),
  native(
    { lsArgs: { path: "$WS/sub", toolCallId: "n7" } },
    { lsResult: { success: { directoryTreeRoot: { childrenFiles: [{ name: "new.txt" }] } } } },
  ),
  native(
    { writeArgs: { path: "$WS/a.txt", fileText: "alpha\nDELTA\n$WS\n", toolCallId: "n8" } },
    { writeResult: { success: { path: contains("a.txt") } } },
  ),
  native(
    { deleteArgs: { path: "$WS/sub/new.txt", toolCallId: "n9" } },
    { deleteResult: { success: { path: contains("new.txt") } } },
  ),
];

const toml = (value) =>
  Array.isArray(value) ? `[${value.map(toml).join(", ")}]`
  : value && typeof value === "object"
    ? `{ ${Object.entries(value).map(([name, field]) => `${JSON.stringify(name)} = ${toml(field)}`).join(", ")} }`
    : JSON.stringify(value);

/** A scenario with one run for each list of steps. */
export function scenario(runs) {
  const whole = ([first, ...rest], index) => [
    ...(index ? [{ expect_state: "last checkpoint" }] : []),
    { exec: { requestContextArgs: {} } },
    first, ...rest,
    { usage: {} }, { checkpoint: "auto" }, { end: true },
  ];
  const parts = runs.map((steps, index) => `[[run]]\nsteps = ${toml(whole(steps, index))}\n`);
  return `name = "agent"\n${parts.join("")}`;
}
