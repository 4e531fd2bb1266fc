/** One sidecar process and the JSON-RPC connection to it. */
import { type ChildProcessWithoutNullStreams, spawn } from "node:child_process";
import { createInterface } from "node:readline";
import type { Methods, Notifications } from "./protocol.ts";

/** Log lines that go to pi's stderr: at once, or when pi has left the screen that it draws. */
const PASSED_ON = /^\{|^\[pi-cursor-sdk:bridge\] |^debug log: /;
const MOST_HELD = 1_000;
const held: string[] = [];
function hold(line: string): void {
  if (held.length === 0) process.once("exit", () => process.stderr.write(held.join("")));
  held.push(`${line}\n`);
  if (held.length > MOST_HELD) held.shift();
}

const FIX = process.env.PI_CURSOR_SIDECAR ? "; correct PI_CURSOR_SIDECAR" : "; install it again";

type Body = { params?: unknown; result?: unknown; error?: { code: number; message: string } };
type Message = Body & { id?: number | null; method?: string };
/** A call is `unsent` if the process ended before it could read the request. */
type Waiting = { resolve(result: unknown): void; reject(error: Error): void; unsent?: boolean };
type OnNotification = (params: Notifications[keyof Notifications]) => void;

/** Cuts bytes into `Content-Length` frames. */
class Frames {
  private pieces: Buffer[] = [];
  private size = 0;
  private needed = 0;
  *take(piece: Buffer): Generator<Message> {
    this.pieces.push(piece);
    this.size += piece.length;
    // A large frame is joined once, not at each of its pieces.
    if (this.size < this.needed) return;
    let rest = Buffer.concat(this.pieces);
    this.needed = 0;
    for (let head = rest.indexOf("\r\n\r\n"); head >= 0; head = rest.indexOf("\r\n\r\n")) {
      const length = /content-length: *(\d+)/i.exec(rest.toString("latin1", 0, head))?.[1];
      const end = head + 4 + Number(length ?? 0);
      this.needed = end > rest.length ? end : 0;
      if (this.needed) break;
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
  private readonly onEnd: (why: string) => void;
  private readonly program: string;
  private lastId = 0;
  private lastLine = "";
  private ended: string | undefined;
  constructor(program: string, onNotification: OnNotification, onEnd: (why: string) => void) {
    this.onEnd = onEnd;
    this.program = program;
    this.child = spawn(program, [], { stdio: "pipe", windowsHide: true });
    const frames = new Frames();
    const { stdin, stdout, stderr } = this.child;
    stdout.on("data", (piece: Buffer) => {
      try {
        for (const message of frames.take(piece)) this.receive(message, onNotification);
      } catch (error) {
        this.end(`cursor-sidecar sent an invalid message: ${error}`); // never an exception in pi
      }
    });
    createInterface(stderr).on("line", (line) => {
      const drawn = process.stdout.isTTY && process.stderr.isTTY && !line.startsWith("debug log");
      if (!PASSED_ON.test(line)) this.lastLine = line.trim() || this.lastLine;
      else if (drawn) hold(line);
      else process.stderr.write(`${line}\n`);
    });
    // A write to an ended process; `close` reports the reason.
    stdin.on("error", () => {});
    this.child.on("error", ({ message }) => this.end(`cannot start ${program}: ${message}${FIX}`));
    this.child.on("close", (code, by) => this.end(`cursor-sidecar ended with ${by ?? code}`));
    this.hold();
  }
  call<M extends keyof Methods>(method: M, params: Methods[M]["params"]) {
    return new Promise<Methods[M]["result"]>((resolve, reject) => {
      if (this.ended !== undefined) return reject(new Error(this.ended));
      const id = ++this.lastId;
      const waiting: Waiting = { resolve: resolve as Waiting["resolve"], reject };
      // First, because another extension may have added a value that is not JSON.
      const body = JSON.stringify({ jsonrpc: "2.0", id, method, params });
      const frame = `Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`;
      this.waiting.set(id, waiting);
      this.hold();
      this.child.stdin.write(frame, (lost) => Object.assign(waiting, { unsent: !!lost }));
    });
  }
  /** Ends a process that does not answer. */
  silent(): void {
    this.end(`${this.program} does not answer${FIX}`);
  }
  /** The sidecar ends with its input. */
  close(): void {
    this.child.stdin.end();
  }
  /** Ends the connection and rejects every open call. */
  end(why: string): void {
    this.child.kill("SIGKILL");
    this.ended ??= this.lastLine ? `${why} (${this.lastLine})` : why;
    this.onEnd(this.ended);
    // pi retries a lost connection, but not a process that never answered `initialize`.
    const lost = this.waiting.has(1) ? this.ended : `connection lost: ${this.ended}`;
    for (const { reject, unsent } of this.waiting.values())
      reject(Object.assign(new Error(lost), { unsent }));
    this.waiting.clear();
    this.hold();
  }
  private receive({ id, method, params, result, error }: Message, notify: OnNotification) {
    if (method !== undefined) {
      // The sidecar requests nothing. A program such as `cat` sends our own requests back.
      if (id != null) return this.end(`${this.program} is not cursor-sidecar${FIX}`);
      try {
        return notify(params as Parameters<OnNotification>[0]);
      } catch {
        return; // pi throws if its session was replaced; other sessions need the process
      }
    }
    // It is unknown which call failed, so all of them end.
    if (id == null) return this.end(`cursor-sidecar could not read a request: ${error?.message}`);
    const waiting = this.waiting.get(id);
    this.waiting.delete(id);
    this.hold();
    if (error) waiting?.reject(Object.assign(new Error(error.message), error));
    else waiting?.resolve(result);
  }

  /** Keeps pi alive while a call is open, and only then. */
  private hold(): void {
    for (const handle of [this.child, ...this.child.stdio]) {
      (handle as { ref?(): void; unref?(): void })[this.waiting.size ? "ref" : "unref"]?.();
    }
  }
}
