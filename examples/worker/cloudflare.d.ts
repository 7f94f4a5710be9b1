// The part of Cloudflare's types that is used here.
declare module "cloudflare:workers" {
  export abstract class DurableObject<Env = unknown> {
    constructor(context: DurableObjectState, env: Env);
    protected readonly ctx: DurableObjectState;
    protected readonly env: Env;
  }
  export interface DurableObjectState {
    readonly storage: {
      readonly sql: {
        readonly exec: (
          statement: string,
          ...values: ReadonlyArray<unknown>
        ) => { readonly toArray: () => Array<Record<string, unknown>> };
      };
      readonly kv: {
        readonly get: <A>(key: string) => A | undefined;
        readonly put: (key: string, value: unknown) => void;
      };
      readonly transactionSync: <A>(body: () => A) => A;
      readonly getAlarm: () => Promise<number | null>;
      readonly setAlarm: (time: number) => Promise<void>;
    };
  }
  export interface Namespace<Class> {
    readonly getByName: (name: string) => {
      readonly [Name in keyof Class]: Class[Name];
    };
  }
}
