/** The sidecar as the extension sees it: always there, started when needed. */
import { findBinary } from "./binary.ts";
import { Connection } from "./connection.ts";
import type { HostEvent, InitializeResult, LogMessageParams, Methods } from "./protocol.ts";
import { PROTOCOL_VERSION } from "./protocol.ts";

/** As editors do with language servers. */
const MAX_RESTARTS = 4;
const RESTART_WINDOW_MS = 3 * 60_000;
/** Cursor's own tools read and search in the sidecar while pi's tool for the same is active. */
const LOCAL = { default: "local", requireHostTool: true } as const;

export class Sidecar {
  /** What the sidecar wants a person to know. */
  onLog: (line: LogMessageParams) => void = () => {};
  /** What the sidecar said of itself when it last started. */
  about: InitializeResult | undefined;
  /** Who hears of a turn under way; its events come before its result. */
  readonly turns = new Map<string, (events: HostEvent[]) => void>();
  private connection: Connection | undefined;
  /** Settled once it takes calls; nothing if none is running. */
  ready: Promise<Connection> | undefined;
  private starts: number[] = [];
  private lastEnd = "";

  async call<M extends keyof Methods>(
    method: M,
    params: Methods[M]["params"],
  ): Promise<Methods[M]["result"]> {
    this.ready ??= this.start().catch((error) => {
      this.forget();
      throw error;
    });
    const connection = await this.ready;
    return connection.call(method, params).catch((error: { unsent?: boolean }) => {
      if (error.unsent) return this.call(method, params);
      throw error;
    });
  }

  /** Lets the process go. The next call starts another one, whatever happened before. */
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
    const now = Date.now();
    this.starts = this.starts.filter((start) => now - start < RESTART_WINDOW_MS);
    if (this.starts.length > MAX_RESTARTS) {
      const left = "failed 5 times within three minutes and is left alone until /reload";
      throw new Error(`cursor-sidecar ${left}; the last time: ${this.lastEnd}`);
    }
    this.starts.push(now);
    // The first restart is at once, the second after 250 ms, each later one after twice as long.
    const later = this.starts.length - 3;
    if (later >= 0) await new Promise((wait) => setTimeout(wait, 250 * 2 ** later));
    if (this.starts.at(-1) !== now) throw new Error("cursor-sidecar was stopped");
    const connection = new Connection(
      findBinary(),
      (told) => {
        if ("turnId" in told) this.turns.get(told.turnId)?.(told.events);
        else this.onLog(told);
      },
      (why) => {
        if (this.connection !== connection) return;
        this.lastEnd = why;
        this.forget();
      },
    );
    this.connection = connection;
    // Importing pi for its version would tie us to one; the sidecar finds it by its program.
    const { argv, stdin, stdout } = process;
    const asked = argv[argv.indexOf("--mode") + 1];
    const print = ["-p", "--print", "--list-models"].some((flag) => argv.includes(flag));
    const shown = !print && stdin.isTTY && stdout.isTTY;
    const mode = asked === "rpc" || asked === "json" ? asked : shown ? "interactive" : "print";
    // A program that does not answer would hold up every start of pi.
    const late = setTimeout(() => connection.end("cursor-sidecar did not answer"), 5_000);
    const about = connection.call("initialize", {
      protocolVersion: PROTOCOL_VERSION,
      host: { name: "pi", program: argv[1], mode, cwd: process.cwd(), processId: process.pid },
      capabilities: { tools: "between" },
      // What changes something is executed by pi's own tools, so that its permissions count.
      nativeTools: { ...LOCAL, shell: "host", write: "host", delete: "host" },
    });
    this.about = await about.finally(() => clearTimeout(late));
    return connection;
  }
}
