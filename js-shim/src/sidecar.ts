/** The sidecar process, started when needed and restarted when it dies. */
import { setTimeout as sleep } from "node:timers/promises";
import { findBinary, VERSION } from "../bin/binary.js";
import { Connection } from "./connection.ts";
import type { HostEvent, InitializeResult, LogMessageParams, Methods } from "./protocol.ts";
import { PROTOCOL_VERSION } from "./protocol.ts";

const MAX_RESTARTS = 4;
const RESTART_WINDOW_MS = 3 * 60_000;
/** Cursor's own tools read and search in the sidecar while pi's tool for the same is active. */
const LOCAL = { default: "local", requireHostTool: true } as const;

export class Sidecar {
  /** Receives messages for the user. */
  onLog: (line: LogMessageParams) => void = () => {};
  /** The answer to the last `initialize`. */
  about: InitializeResult | undefined;
  /** Receives the events of each turn in progress, before its result. */
  readonly turns = new Map<string, (events: HostEvent[]) => void>();
  private connection: Connection | undefined;
  /** Resolves once the process accepts calls; undefined while none is running. */
  ready: Promise<Connection> | undefined;
  private starts: number[] = [];
  /** Why no process is running, if one was wanted. */
  lastEnd = "";
  async call<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
  ): Promise<Methods[M]["result"]> {
    this.ready ??= this.start().catch((error) => {
      this.lastEnd ||= error.message;
      this.forget();
      throw error;
    });
    const connection = await this.ready;
    return connection.call(method, params).catch((error: { unsent?: boolean }) => {
      if (error.unsent) return this.call(method, params);
      throw error;
    });
  }
  /** Ends the process. The next call starts another, and restarts are counted from zero. */
  stop(): void {
    this.forget();
    this.starts = [];
  }
  private forget(): void {
    this.connection?.close();
    this.connection = undefined;
    this.ready = undefined;
  }
  private async start(): Promise<Connection> {
    const program = findBinary(); // a missing program is no crash
    const now = Date.now();
    this.starts = this.starts.filter((start) => now - start < RESTART_WINDOW_MS);
    if (this.starts.length > MAX_RESTARTS) {
      const left = "failed 5 times within three minutes and is left alone until /reload";
      throw new Error(`cursor-sidecar ${left}; the last time: ${this.lastEnd}`);
    }
    this.starts.push(now);
    // The first restart is at once, the second after 250 ms, each later one after twice as long.
    if (this.starts.length > 2) await sleep(250 * 2 ** (this.starts.length - 3));
    if (this.starts.at(-1) !== now) throw new Error("cursor-sidecar was stopped");
    const connection = new Connection(
      program,
      (notification) => {
        if ("turnId" in notification) this.turns.get(notification.turnId)?.(notification.events);
        else this.onLog(notification);
      },
      (why) => {
        if (this.connection !== connection) return;
        this.lastEnd = why;
        this.forget();
      },
    );
    this.connection = connection;
    // The sidecar finds pi's version by its program, because importing pi would tie us to one.
    const { argv, stdin, stdout } = process;
    const asked = argv[argv.indexOf("--mode") + 1];
    const print = ["-p", "--print", "--list-models"].some((flag) => argv.includes(flag));
    const shown = !print && stdin.isTTY && stdout.isTTY;
    const mode = asked === "rpc" || asked === "json" ? asked : shown ? "interactive" : "print";
    const late = setTimeout(() => connection.silent(), 5_000);
    const about = connection.call("initialize", {
      protocolVersion: PROTOCOL_VERSION,
      host: { name: "pi", program: argv[1], mode, cwd: process.cwd(), processId: process.pid },
      capabilities: { tools: "between", waiting: mode === "interactive" || mode === "rpc" },
      // What changes something is executed by pi's own tools, so that its permissions count.
      nativeTools: { ...LOCAL, shell: "host", write: "host", delete: "host" },
    });
    // A sidecar of another protocol refuses, with the versions it has.
    const other = (error: Error & { data?: InitializeResult }) =>
      error.data ?? Promise.reject(error);
    this.about = await about.catch(other).finally(() => clearTimeout(late));
    const { version, protocolVersion } = this.about;
    if (version === VERSION && protocolVersion === PROTOCOL_VERSION) return connection;
    this.about = undefined;
    throw new Error(`pi-cursor-sidecar ${VERSION} (protocol ${PROTOCOL_VERSION}) cannot use \
cursor-sidecar ${version} (protocol ${protocolVersion}) at ${program}: install the same version of \
both with \`pi install npm:pi-cursor-sidecar\`, or correct PI_CURSOR_SIDECAR or the PATH`);
  }
}
