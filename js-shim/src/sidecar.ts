/** The sidecar as the extension sees it: always there, started when needed. */
import { findBinary } from "./binary.ts";
import { Connection } from "./connection.ts";
import type { Host, HostEvent, LogMessageParams, Methods } from "./protocol.ts";
import { PROTOCOL_VERSION } from "./protocol.ts";

/** As editors do with language servers. */
const MAX_RESTARTS = 4;
const RESTART_WINDOW_MS = 3 * 60_000;

type OnEvents = (events: HostEvent[]) => void;

export class Sidecar {
  /** What the sidecar wants a person to know. */
  onLog: (line: LogMessageParams) => void = () => {};
  private host: Host;
  private connection: Connection | undefined;
  private ready: Promise<Connection> | undefined;
  private starts: number[] = [];
  private lastEnd = "";
  private readonly turns = new Map<string, OnEvents>();

  constructor(host: Host) {
    this.host = host;
  }

  get running(): boolean {
    return this.ready !== undefined;
  }

  /** The host as it is now known. A sidecar that was told otherwise makes way for a new one. */
  introduce(host: Host): void {
    const news = JSON.stringify(host) !== JSON.stringify(this.host);
    this.host = host;
    if (news && this.connection?.idle) this.stop();
  }

  async call<M extends keyof Methods>(method: M, params: Methods[M]["params"]) {
    this.ready ??= this.start();
    return (await this.ready).call(method, params);
  }

  /** Whether what Cursor's own tools did is to be shown as cards. */
  async wantsCards(): Promise<boolean> {
    this.ready ??= this.start();
    return (await this.ready).cards;
  }

  /** A turn; its events come before its result. */
  async turn(params: Methods["turn/start"]["params"], onEvents: OnEvents) {
    this.turns.set(params.turnId, onEvents);
    try {
      return await this.call("turn/start", params);
    } finally {
      this.turns.delete(params.turnId);
    }
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
    try {
      const now = Date.now();
      this.starts = this.starts.filter((start) => now - start < RESTART_WINDOW_MS);
      if (this.starts.length > MAX_RESTARTS) {
        const left = `failed ${this.starts.length} times within three minutes and is left alone until /reload`;
        throw new Error(`cursor-sidecar ${left}; the last time: ${this.lastEnd}`);
      }
      this.starts.push(now);
      const connection = new Connection(
        findBinary(),
        (name, params) => {
          if ("turnId" in params) this.turns.get(params.turnId)?.(params.events);
          else if (name === "log/message") this.onLog(params);
        },
        (why) => {
          if (this.connection !== connection) return;
          this.lastEnd = why;
          this.forget();
        },
      );
      this.connection = connection;
      const about = { host: this.host, capabilities: { tools: "between" as const } };
      const hello = { protocolVersion: PROTOCOL_VERSION, ...about };
      connection.cards = (await connection.call("initialize", hello)).cards;
      return connection;
    } catch (error) {
      this.forget();
      throw error;
    }
  }
}
