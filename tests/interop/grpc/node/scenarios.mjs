// One scenario of the Node client of 5.x: SCENARIO ADDRESS TOPIC GROUP [ARGUMENT...]; ../scenarios.md has them all.

import client from "rocketmq-client-nodejs";

const { Producer, SimpleConsumer, PushConsumer, FilterExpression, ConsumeResult } = client;
const [scenario, address, topic, group, ...rest] = process.argv.slice(2);
const quiet = { debug() {}, info() {}, warn: console.error, error: console.error };
const HIDDEN_MS = 10_000;
/** Values of enumerations that the package does not export. */
const SQL = 2;
const UNDECIDED = 0;
const COMMIT = 1;
const ROLLBACK = 2;

const common = {
  endpoints: address,
  namespace: "",
  logger: quiet,
  sslEnabled: process.env.GRPC_TLS === "1",
  sessionCredentials: process.env.GRPC_USER
    ? { accessKey: process.env.GRPC_USER, accessSecret: process.env.GRPC_SECRET }
    : undefined,
};

const show = (value) => process.stdout.write(`${JSON.stringify(value)}\n`);
const message = (body, fields = {}) => ({ topic, body: Buffer.from(body), ...fields });
const bodies = (views) => views.map((one) => one.body.toString());

const filterOf = (kind, expression) => (kind === "SQL" ? new FilterExpression(expression, SQL) : expression);

/** The message of an argument. */
function described(text) {
  const fields = new URLSearchParams(text);
  const made = { keys: fields.getAll("key"), properties: new Map() };
  for (const [name, value] of fields) {
    if (name === "body") made.body = Buffer.from(value);
    if (name === "size") made.body = Buffer.alloc(Number(value), "x");
    if (name === "tag") made.tag = value;
    if (name === "group") made.messageGroup = value;
    if (name === "in") made.deliveryTimestamp = new Date(Date.now() + Number(value) * 1_000);
    if (name.startsWith("property.")) made.properties.set(name.slice(9), value);
  }
  return message(" ", made);
}

async function started(member) {
  await member.startup();
  return member;
}

const producer = (options = {}) => started(new Producer({ ...common, topics: [topic], ...options }));

const consumer = (expression = "*") =>
  started(new SimpleConsumer({
    ...common, consumerGroup: group, subscriptions: new Map([[topic, expression]]), awaitDuration: 5_000,
  }));

async function received(member, count, acks = true) {
  const found = [];
  const end = Date.now() + 30_000;
  while (found.length < count && Date.now() < end) {
    for (const one of await member.receive(32, HIDDEN_MS)) {
      found.push(one);
      if (acks) await member.ack(one);
    }
  }
  return found;
}

/** Resolves when the input ends or has a byte. */
const input = () => new Promise((resolve) => {
  process.stdin.once("data", resolve);
  process.stdin.once("end", resolve);
});

const scenarios = {
  async normal() {
    const [sender, member] = [await producer(), await consumer()];
    const receipt = await sender.send(message("hello", {
      tag: "greeting", keys: ["key-1"], properties: new Map([["color", "blue"]]),
    }));
    const found = (await received(member, 1)).map((one) => ({
      id: one.messageId, body: one.body.toString(), tag: one.tag, keys: one.keys, color: one.properties.get("color"),
      attempt: one.deliveryAttempt,
    }));
    const again = await member.receive(32, HIDDEN_MS);
    await member.shutdown();
    await sender.shutdown();
    return { sent: receipt.messageId, found, rest: again.length };
  },

  async fifo() {
    const [sender, member] = [await producer(), await consumer()];
    for (let number = 0; number < 4; number++) await sender.send(message(`${number}`, { messageGroup: "order-1" }));
    const views = await received(member, 4);
    return { found: bodies(views), groups: views.map((one) => one.messageGroup) };
  },

  async delay() {
    const [sender, member] = [await producer(), await consumer()];
    const begin = Date.now();
    const receipt = await sender.send(message("later", { deliveryTimestamp: new Date(begin + 3_000) }));
    const found = bodies(await received(member, 1));
    return { found, after: (Date.now() - begin) / 1e3, recall: Boolean(receipt.recallHandle) };
  },

  async recall() {
    const sender = await producer();
    const receipt = await sender.send(message("never", { deliveryTimestamp: new Date(Date.now() + 60_000) }));
    const recalled = await sender.recallMessage(topic, receipt.recallHandle);
    return { sent: receipt.messageId, recalled: recalled.messageId };
  },

  async transactions() {
    const asked = [];
    const sender = await producer({
      checker: {
        async check(one) {
          asked.push(one.body.toString());
          return COMMIT;
        },
      },
    });
    const member = await consumer();
    for (const body of ["commit", "rollback", "check"]) {
      const transaction = sender.beginTransaction();
      await sender.send(message(body), transaction);
      if (body === "commit") await transaction.commit();
      if (body === "rollback") await transaction.rollback();
    }
    return { found: bodies(await received(member, 2)), asked };
  },

  async again() {
    const [sender, member] = [await producer(), await consumer()];
    await sender.send(message("once more"));
    const [first] = await received(member, 1, false);
    await member.changeInvisibleDuration(first, 1_000);
    const [second] = await received(member, 1, false);
    await member.changeInvisibleDuration(second, 30_000);
    await member.ack(second);
    return { attempts: [first.deliveryAttempt, second.deliveryAttempt] };
  },

  async filter() {
    const [kind, expression] = rest;
    const sender = await producer();
    const member = await consumer(filterOf(kind, expression));
    for (let number = 0; number < 4; number++) {
      await sender.send(message(`${number}`, {
        tag: number % 2 === 0 ? "even" : "odd", properties: new Map([["number", `${number}`]]),
      }));
    }
    return { found: bodies(await received(member, 2)) };
  },

  async exchange() {
    const [kind, expression, count, ...texts] = rest;
    const sender = await producer();
    const member = Number(count) ? await consumer(filterOf(kind, expression)) : null;
    const refused = [];
    for (const text of texts) {
      try {
        await sender.send(described(text));
        refused.push(null);
      } catch (error) {
        refused.push(String(error));
      }
    }
    const views = member ? await received(member, Number(count)) : [];
    const found = views.map((one) => ({
      body: one.body.toString(), tag: one.tag, keys: one.keys, properties: Object.fromEntries(one.properties),
    }));
    return { refused, found };
  },

  async batches() {
    const [sender, member, count] = [await producer(), await consumer(), Number(rest[0])];
    await Promise.all(Array.from({ length: count }, (_, number) => sender.send(message(`${number}`))));
    const [sizes, found] = [[], []];
    const end = Date.now() + 60_000;
    while (found.length <= count && Date.now() < end) {
      const views = await member.receive(50, HIDDEN_MS);
      for (const one of views) {
        const body = one.body.toString();
        found.push([body, one.deliveryAttempt]);
        if (body !== "0" || one.deliveryAttempt !== 1) await member.ack(one);
      }
      if (views.length) sizes.push(views.length);
    }
    return { sizes, found, rest: (await member.receive(32, HIDDEN_MS)).length };
  },

  async stuck() {
    const [sender, member] = [await producer(), await consumer()];
    for (let number = 0; number < 6; number++) await sender.send(message(`${number}`, { messageGroup: "order-1" }));
    const [batches, acked] = [[], new Set()];
    const end = Date.now() + 60_000;
    while (acked.size < 6 && Date.now() < end) {
      const views = await member.receive(3, HIDDEN_MS);
      if (!views.length) continue;
      batches.push(bodies(views));
      for (const one of batches.length === 1 ? views.slice(1) : views) {
        await member.ack(one);
        acked.add(one.body.toString());
      }
    }
    return { batches };
  },

  async bounds() {
    const member = await consumer();
    const refused = [];
    for (const seconds of [9, 43_201]) {
      refused.push(await member.receive(1, seconds * 1_000).then(() => null, String));
    }
    const begin = Date.now();
    const count = (await member.receive(100_000, HIDDEN_MS)).length;
    return { refused, count, after: (Date.now() - begin) / 1e3 };
  },

  async late() {
    const [sender, member] = [await producer(), await consumer()];
    await sender.send(message("late"));
    const [first] = await received(member, 1, false);
    await new Promise((resolve) => setTimeout(resolve, HIDDEN_MS + 1_000));
    const refused = await member.ack(first).then(() => null, String);
    const [second] = await received(member, 1);
    return { refused, attempt: second.deliveryAttempt };
  },

  async checks() {
    const asked = [];
    const sender = await producer({
      checker: {
        async check(one) {
          const body = one.body.toString();
          const isFirst = !asked.includes(body);
          asked.push(body);
          if (body === "rollback") return ROLLBACK;
          return body === "unknown" && isFirst ? UNDECIDED : COMMIT;
        },
      },
    });
    const member = await consumer();
    for (const body of ["commit", "rollback", "unknown"]) await sender.send(message(body), sender.beginTransaction());
    const found = bodies(await received(member, 2));
    return { found: found.concat(bodies(await member.receive(32, HIDDEN_MS))), asked };
  },

  async send() {
    try {
      const receipt = await (await producer()).send(message("hello"));
      return { sent: receipt.messageId };
    } catch (error) {
      return { refused: String(error) };
    }
  },

  async push() {
    const ended = input();
    const seen = new Set();
    const member = new PushConsumer({
      ...common,
      consumerGroup: group,
      subscriptions: new Map([[topic, FilterExpression.SUB_ALL]]),
      longPollingTimeout: 5_000,
      messageListener: {
        async consume(one) {
          const body = one.body.toString();
          show({ got: body, attempt: one.deliveryAttempt });
          const isNew = !seen.has(body);
          seen.add(body);
          const fails = body.startsWith("bad") || (body.startsWith("once") && isNew);
          return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
        },
      },
    });
    await member.startup();
    show({ ready: true });
    await ended;
    return { ended: group };
  },

  async steady() {
    const sender = await producer();
    let isOver = false;
    input().then(() => { isOver = true; });
    for (let number = 0; !isOver; number++) {
      try {
        await sender.send(message(`${number}`));
        show({ sent: `${number}` });
      } catch (error) {
        show({ failed: String(error) });
      }
      await new Promise((resolve) => setTimeout(resolve, 100));
    }
    return { ended: topic };
  },
};

const result = await scenarios[scenario]();
process.stdout.write(`${JSON.stringify(result)}\n`, () => process.exit(0));
