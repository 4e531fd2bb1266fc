/** One sidecar process and the JSON-RPC spoken with it. */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import type { Methods, Notifications } from "./protocol.ts";

/** How much of what the sidecar wrote to stderr is kept to explain its end. */
const STDERR_TAIL = 1000;
/** Somebody else may hold the pipes of a process that is gone; then this ends the wait. */
const DRAIN_MS = 200;
const METHOD_NOT_FOUND = -32601;

/** A refusal of the sidecar, or its end. */
export class SidecarError extends Error {
  readonly code: number | undefined;
  constructor(message: string, code?: number) {
    super(message);
    this.code = code;
  }
  get unknownMethod(): boolean {
    return this.code === METHOD_NOT_FOUND;
  }
}

type Message = {
  id?: number;
  method?: string;
  params?: unknown;
  result?: unknown;
  error?: { code: number; message: string };
};
type Waiting = { resolve(result: unknown): void; reject(error: Error): void };

export type OnNotification = <N extends keyof Notifications>(
  name: N,
  params: Notifications[N],
) => void;

/** Cuts bytes into `Content-Length` frames. */
export class Frames {
  private pieces: Buffer[] = [];
  private size = 0;
  private needed = 0;

  /** The messages a piece completes. */
  *take(piece: Buffer): Generator<Message> {
    this.pieces.push(piece);
    this.size += piece.length;
    // Joining a large frame once, not at each of its pieces.
    if (this.size < this.needed) return;
    let rest = Buffer.concat(this.pieces);
    this.needed = 0;
    for (;;) {
      const head = rest.indexOf("\r\n\r\n");
      if (head < 0) break;
      const length = /content-length: *(\d+)/i.exec(rest.toString("latin1", 0, head))?.[1];
      const end = head + 4 + Number(length ?? 0);
      if (rest.length < end) {
        this.needed = end;
        break;
      }
      if (length) yield JSON.parse(rest.toString("utf8", head + 4, end));
      rest = rest.subarray(end);
    }
    this.pieces = [rest];
    this.size = rest.length;
  }
}

export class Connection {
  private readonly child: ChildProcessWithoutNullStreams;
  private readonly waiting = new Map<number, Waiting>();
  private readonly onNotification: OnNotification;
  private readonly onEnd: (why: string) => void;
  private lastId = 0;
  private stderr = "";
  private closing = false;
  private ended: string | undefined;

  constructor(program: string, onNotification: OnNotification, onEnd: (why: string) => void) {
    this.onNotification = onNotification;
    this.onEnd = onEnd;
    this.child = spawn(program, [], { stdio: "pipe", windowsHide: true });
    const frames = new Frames();
    this.child.stdout.on("data", (piece: Buffer) => {
      for (const message of frames.take(piece)) this.receive(message);
    });
    this.child.stderr.on("data", (piece: Buffer) => {
      this.stderr = (this.stderr + piece.toString("utf8")).slice(-STDERR_TAIL);
    });
    // Writing to a process that is gone; its end says why.
    this.child.stdin.on("error", () => {});
    this.child.on("error", (error) => this.end(`cannot start ${program}: ${error.message}`));
    this.child.on("exit", (code, signal) => {
      const how = signal ? `was killed by ${signal}` : `ended with code ${code}`;
      const timer = setTimeout(() => this.end(how), DRAIN_MS);
      this.child.on("close", () => {
        clearTimeout(timer);
        this.end(how);
      });
    });
    this.hold(false);
  }

  get idle(): boolean {
    return this.waiting.size === 0;
  }

  call<M extends keyof Methods>(method: M, params: Methods[M]["params"]) {
    return new Promise<Methods[M]["result"]>((resolve, reject) => {
      if (this.ended !== undefined) return reject(new SidecarError(this.ended));
      if (this.idle) this.hold(true);
      this.lastId += 1;
      this.waiting.set(this.lastId, { resolve: resolve as Waiting["resolve"], reject });
      this.send({ id: this.lastId, method, params });
    });
  }

  /** The sidecar ends with its input. */
  close(): void {
    this.closing = true;
    this.child.stdin.end();
  }

  private send(message: Message): void {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    this.child.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  }

  private receive({ id, method, params, result, error }: Message): void {
    if (method !== undefined && id === undefined) {
      this.onNotification(method as keyof Notifications, params as never);
    } else if (method !== undefined) {
      this.send({ id, error: { code: METHOD_NOT_FOUND, message: `pi has no ${method}` } });
    } else if (id !== undefined) {
      const waiting = this.waiting.get(id);
      this.waiting.delete(id);
      if (this.idle) this.hold(false);
      if (error) waiting?.reject(new SidecarError(error.message, error.code));
      else waiting?.resolve(result);
    }
  }

  /** pi must not exit while it is owed an answer, nor stay for an idle sidecar. */
  private hold(on: boolean): void {
    const { child } = this;
    for (const handle of [child, child.stdin, child.stdout, child.stderr] as unknown[]) {
      const counted = handle as { ref?(): void; unref?(): void };
      if (on) counted.ref?.();
      else counted.unref?.();
    }
  }

  private end(how: string): void {
    if (this.ended !== undefined) return;
    const said = this.stderr.trim().split("\n").pop();
    this.ended = how.startsWith("cannot") ? how : `cursor-sidecar ${how}`;
    if (said) this.ended += ` (${said})`;
    if (!this.closing) this.onEnd(this.ended);
    for (const { reject } of this.waiting.values()) reject(new SidecarError(this.ended));
    this.waiting.clear();
    this.hold(false);
  }
}
