// Tools that a client executes for real, in the folder of the process.
import { execFileSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";

const text = { type: "string" };
const object = (properties) => ({
  type: "object", properties, required: Object.keys(properties), additionalProperties: false,
});

/** The definitions: name, description, JSON Schema. */
export const definitions = [
  { name: "view_file", description: "Reads a file.", schema: object({ file: text }) },
  { name: "execute", description: "Runs a command.", schema: object({ script: text }) },
  { name: "replace", description: "Edits a file.", schema: object({ file: text, from: text, to: text }) },
];

/** Executes a call and returns its result. */
export function execute(name, args) {
  switch (name) {
    case "view_file":
      return readFileSync(args.file, "utf8");
    case "execute":
      return execFileSync("/bin/sh", ["-c", args.script], { encoding: "utf8" });
    case "replace":
      writeFileSync(args.file, readFileSync(args.file, "utf8").replace(args.from, args.to));
      return "replaced";
    default:
      throw new Error(`no tool ${name}`);
  }
}

/** Fails unless a URL is on this machine. */
export function local(url) {
  const { hostname } = new URL(url);
  if (hostname !== "127.0.0.1") throw new Error(`not on this machine: ${hostname}`);
  return url;
}
