#!/usr/bin/env node
// `npx --package pi-cursor-sidecar cursor-sidecar`: runs the program of this platform.
import { spawn } from "node:child_process";
import { realpathSync } from "node:fs";
import { constants } from "node:os";
import { delimiter } from "node:path";
import { fileURLToPath } from "node:url";
import { findBinary } from "./binary.js";

/** Returns whether a folder's `cursor-sidecar` is this file, which would start itself for ever. */
const isOwn = (folder) => {
  try {
    return realpathSync(`${folder}/cursor-sidecar`) === fileURLToPath(import.meta.url);
  } catch {
    return false;
  }
};
const fail = ({ message }) => {
  console.error(`error: ${message}`);
  process.exit(127);
};
try {
  const folders = (process.env.PATH ?? "").split(delimiter);
  process.env.PATH = folders.filter((folder) => !isOwn(folder)).join(delimiter);
  const child = spawn(findBinary(), process.argv.slice(2), { stdio: "inherit" });
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"])
    process.on(signal, () => child.kill(signal));
  child.on("error", fail);
  child.on("exit", (code, signal) => process.exit(code ?? 128 + constants.signals[signal]));
} catch (error) {
  fail(error);
}
