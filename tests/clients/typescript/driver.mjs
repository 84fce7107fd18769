// Anthropic's TypeScript SDK through everything that a test asks for: a JSON job on stdin, a JSON result on stdout.
// It judges nothing; test_typescript_sdk.py does.
import { readFileSync } from 'node:fs';
import { setTimeout } from 'node:timers/promises';
import Anthropic from '@anthropic-ai/sdk';
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod';
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod';
import { z } from 'zod';

const job = JSON.parse(readFileSync(0, 'utf8'));

/** Whether Redis had no second for a request: tests/e2e/unheard.py. */
async function isUnheard(response) {
  if (response.status !== 503) return false;
  const text = await response.clone().text();
  return job.unheard.some((sentence) => text.includes(sentence));
}

/** A client, and the status and body of each request that it sent, retries included. */
function connect(options = {}) {
  const requests = [];
  const counting = async (url, init) => {
    let response = await fetch(url, init);
    for (let times = 0; times < 20 && (await isUnheard(response)); times += 1) {
      await setTimeout(1000);
      response = await fetch(url, init);
    }
    requests.push({ status: response.status, body: init.body ? JSON.parse(init.body) : null });
    return response;
  };
  const client = new Anthropic({ baseURL: job.base_url, authToken: job.api_key, apiKey: null, fetch: counting, ...options });
  return { client, requests };
}

/** A client whose every request is answered with these bytes. */
function replaying(bytes) {
  const answer = async () => new Response(bytes, { headers: { 'Content-Type': 'text/event-stream' } });
  return new Anthropic({ baseURL: 'http://nowhere', apiKey: 'none', fetch: answer, maxRetries: 0 });
}

const statuses = (requests) => requests.map((request) => request.status);

/** What `run` gives, or the facts of what it throws. */
async function attempt(run) {
  try {
    return { value: await run() };
  } catch (error) {
    return {
      error: {
        class: error.constructor.name,
        status: error.status ?? null,
        type: error.type ?? null,
        request_id: error.requestID ?? null,
        body: error.error ?? null,
        message: error.message,
      },
    };
  }
}

async function converse({ name, body, may_fail }) {
  const { client, requests } = connect(may_fail ? { maxRetries: 0 } : {});
  const whole = await attempt(() => client.messages.create(body));
  const streamed = await attempt(() => client.messages.stream(body).finalMessage());
  const events = [];
  const raw = await attempt(async () => {
    for await (const event of await client.messages.create({ ...body, stream: true })) events.push(event);
  });
  return [name, { whole, streamed, raw, events, statuses: statuses(requests) }];
}

async function refuse({ name, body, headers, is_final }) {
  const results = {};
  for (const stream of [false, true]) {
    const { client, requests } = connect(is_final ? {} : { maxRetries: 0 });
    const result = await attempt(() => client.messages.create({ ...body, stream }, { headers }));
    results[stream ? 'streamed' : 'whole'] = { ...result, statuses: statuses(requests) };
  }
  return [name, results];
}

async function replay({ name, path, body }) {
  return [name, await attempt(() => replaying(readFileSync(path)).messages.stream(body).finalMessage())];
}

const weather = betaZodTool({
  name: 'get_weather',
  description: 'The weather in a city',
  inputSchema: z.object({ city: z.string() }),
  run: ({ city }) => {
    if (city === 'nowhere') throw new Error('no such city');
    return `20 degrees in ${city}`;
  },
});

async function runTools(stream) {
  const { client, requests } = connect();
  const texts = [];
  const result = await attempt(async () => {
    const runner = client.beta.messages.toolRunner({ ...job.loop, tools: [weather], stream });
    for await (const item of runner) {
      const message = stream ? await item.finalMessage() : item;
      texts.push(message.content.filter((block) => block.type === 'text').map((block) => block.text).join(''));
    }
  });
  return { ...result, texts, requests };
}

async function parse() {
  const { client, requests } = connect();
  const Landmark = z.object({ name: z.string(), height_m: z.int(), is_open: z.boolean().nullish() });
  const body = { ...job.landmark, output_config: { format: zodOutputFormat(Landmark) } };
  const whole = await attempt(async () => (await client.messages.parse(body)).parsed_output);
  const streamed = await attempt(async () => (await client.messages.stream(body).finalMessage()).parsed_output);
  return { whole, streamed, statuses: statuses(requests) };
}

async function lookAround() {
  const { client, requests } = connect();
  const { max_tokens: _, ...counted } = job.conversations[0].body;
  const count = await attempt(() => client.messages.countTokens(counted));
  const listed = [];
  for await (const model of client.models.list()) listed.push(model);
  const retrieved = await attempt(() => client.models.retrieve(counted.model));
  const missing = await attempt(() => client.models.retrieve('claude-opus-5-5'));
  return { count, listed, retrieved, missing, statuses: statuses(requests) };
}

const together = async (jobs, run) => Object.fromEntries(await Promise.all(jobs.map(run)));
const [conversations, refusals, replays, whole, streamed, parsed, around] = await Promise.all([
  together(job.conversations, converse),
  together(job.refusals, refuse),
  together(job.streams, replay),
  runTools(false),
  runTools(true),
  parse(),
  lookAround(),
]);
const result = { conversations, refusals, replays, tool_runner: { whole, streamed }, parsed, around };
process.stdout.write(JSON.stringify(result));
