// graphile-worker: local queue of 500, batched completion, addJobs in one call.
const { Logger, makeWorkerUtils, run } = require("graphile-worker");
const { Pool } = require("pg");
const { Contender, serve } = require("./protocol.cjs");

const CONCURRENCY = 50;
const quiet = new Logger(() => () => {});

class Graphile extends Contender {
  version = require("graphile-worker/package.json").version;
  settings = `concurrentJobs ${CONCURRENCY}, localQueue 500, batched completion, addJobs`;
  async setup() {
    this.pgPool = new Pool({ ...this.where, max: 12 });
    this.pgPool.on("error", () => {});
    this.utils = await makeWorkerUtils({ pgPool: this.pgPool, logger: quiet });
    await this.utils.migrate();
  }
  async enqueue(n) {
    await this.utils.addJob("bench", { n });
  }
  async enqueueMany(count) {
    for (let start = 0; start < count; start += 1000) {
      const size = Math.min(1000, count - start);
      await this.utils.addJobs(Array.from({ length: size }, (_, k) => ({ identifier: "bench", payload: { n: start + k } })));
    }
  }
  async start(kind) {
    const taskList = { bench: async ({ n }) => { await this.run(n, kind); } };
    const worker = {
      concurrentJobs: CONCURRENCY, localQueue: { size: 500 }, completeJobBatchDelay: 0, failJobBatchDelay: 0,
    };
    this.runner = await run({ preset: { worker }, taskList, pgPool: this.pgPool, logger: quiet, noHandleSignals: true });
  }
  async stop() {
    await this.runner.stop();
  }
  async left() {
    return Number((await this.pgPool.query("select count(*) from graphile_worker._private_jobs")).rows[0].count);
  }
  async empty() {
    await this.pgPool.query("truncate graphile_worker._private_jobs");
  }
}

const [host, user, database] = process.argv.slice(2);
serve(new Graphile({ host, user, database }));
