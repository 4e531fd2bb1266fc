/** pi's sessions that are open. Requests of any other one are made beside them. */

export class Session {
  readonly id: string;
  readonly cwd: string;
  /** While pi runs tools no stream would hear of an abort: this stops listening for it. */
  private release: (() => void) | undefined;

  constructor(id: string, cwd: string) {
    this.id = id;
    this.cwd = cwd;
  }

  get parked(): boolean {
    return this.release !== undefined;
  }

  park(signal: AbortSignal | undefined, abort: () => void): void {
    this.release = () => signal?.removeEventListener("abort", abort);
  }

  /** The next turn, or the end of pi's run: nobody waits any more. */
  resume(): void {
    this.release?.();
    this.release = undefined;
  }
}

export type Sessions = Map<string, Session>;
