// The page for log-in by device: a session, the code, who asks, and the answer to it.
//
// Decides what a person sees at each step. What the server says is only ever set as text (the page's policy on Trusted
// Types refuses anything else). The session's token lives in `session` alone, so it is gone with the page.

const UNREACHABLE = "The server does not answer. Check your connection and try again.";
const MAY = new Map([
  ["infer:run", "ask models"],
  ["models:read", "list models"],
  ["keys:read", "list API keys"],
  ["keys:write", "make and revoke API keys"],
  ["requests:read", "read the request log"],
  ["usage:read", "read usage"],
]);
const STEPS = ["broken", "log-in", "code", "decision", "approved", "denied"];
const FIRST = { "log-in": "email", code: "user-code" }; // where the focus goes; elsewhere to the heading
const AGAIN = { "log-in": "password", code: "user-code" }; // what is typed again after a refusal

let session = null; // what GET /v1/auth/session told
let asking = null; // what GET /v1/auth/device told

const at = (id) => document.getElementById(id);

/** What the server refused, or did not answer: `words` are for the person, `requestId` for who helps him. */
class Refusal extends Error {
  constructor(status, words, requestId = "", param = undefined) {
    super(words);
    Object.assign(this, { status, words, requestId, param });
  }
}

/** The answer's body and, by the server's own clock, its time. */
async function ask(method, path, body) {
  const headers = body === undefined ? {} : { "Content-Type": "application/json" };
  if (session) headers["x-b3os-csrf"] = session.csrf_token;
  let response, text;
  try {
    response = await fetch(path, { method, headers, body: JSON.stringify(body), cache: "no-store", redirect: "error" });
    text = await response.text();
  } catch {
    throw new Refusal(0, UNREACHABLE);
  }
  const told = parse(text);
  if (!response.ok) {
    const words = sentence(told.detail ?? `the server answered with status ${response.status}`);
    throw new Refusal(response.status, words, response.headers.get("x-request-id") ?? "", told.param);
  }
  return { ...told, answered_at: response.headers.get("Date") };
}

function parse(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

function sentence(text) {
  return `${text.charAt(0).toUpperCase()}${text.slice(1).replace(/[.]$/, "")}.`;
}

/** Show one step, and put the focus where its reader or its typist goes on. */
function show(step) {
  at("loading").hidden = true;
  for (const each of STEPS) {
    at(each).hidden = each !== step;
    at(each).querySelector(".error")?.replaceChildren();
  }
  at("who").hidden = session === null;
  at("who-email").textContent = session?.user.email ?? "";
  document.title = `${at(`${step}-title`).textContent} · B3OS`;
  at(FIRST[step] ?? `${step}-title`).focus();
}

function tell(step, refusal) {
  const facts = document.createElement("small");
  facts.textContent = refusal.requestId && `Request ${refusal.requestId}`;
  at(step).querySelector(".error").replaceChildren(refusal.words, facts);
}

/** Do it once at a time, with the step's buttons held; a refusal is told where the person is. */
async function work(step, task) {
  if (at(step).ariaBusy === "true") return;
  const buttons = [...at(step).querySelectorAll("button"), at("log-out")];
  const focused = document.activeElement;
  at(step).ariaBusy = "true";
  at(step).querySelector(".error")?.replaceChildren();
  for (const button of buttons) button.disabled = true;
  try {
    await task();
  } catch (refusal) {
    if (!(refusal instanceof Refusal)) throw refusal;
    await recover(step, refusal);
  } finally {
    at(step).ariaBusy = "false";
    for (const button of buttons) button.disabled = false;
    at("approve").disabled = !places().length;
    if (document.activeElement === document.body) focused.focus(); // a button that is held loses it
  }
}

/** A session that ended is begun anew. One that another tab changed may be another person's: then all is asked again. */
async function recover(step, refusal) {
  if (refusal.status === 401 && session) {
    session = null;
    return lead("log-in", refusal);
  }
  if (refusal.status === 403 && !refusal.param && session) {
    session = await ask("GET", "/v1/auth/session").catch(() => null);
    if (session) return lead("code", new Refusal(403, "Your session has changed. Look again who you are."));
    return lead("log-in", refusal);
  }
  if (step === "decision" && refusal.param === "user_code") return lead("code", refusal);
  tell(step, refusal);
  at(AGAIN[step])?.focus();
}

function lead(step, refusal) {
  show(step);
  tell(step, refusal);
}

async function begin() {
  try {
    session = await ask("GET", "/v1/auth/session");
  } catch (refusal) {
    session = null;
    if (!(refusal instanceof Refusal)) throw refusal;
    if (refusal.status !== 401) return lead("broken", refusal);
  }
  show(session ? "code" : "log-in");
}

async function logIn() {
  const password = at("password").value;
  at("password").value = "";
  session = await ask("POST", "/v1/auth/login", { email: at("email").value, password });
  show("code");
}

async function logOut() {
  await ask("POST", "/v1/auth/logout");
  session = asking = null;
  show("log-in");
}

async function lookUp() {
  asking = await ask("GET", `/v1/auth/device?user_code=${encodeURIComponent(at("user-code").value)}`);
  at("client").textContent = `“${asking.client}”`;
  at("address").textContent = asking.address;
  at("age").textContent = age(Date.parse(asking.answered_at) - Date.parse(asking.created_at));
  at("shown-code").textContent = asking.user_code;
  at("you").textContent = session.user.email;
  fill(at("organization"), places().map((place) => place.id), session.organization);
  at("places").hidden = !places().length;
  at("nowhere").hidden = places().length > 0;
  showProjects();
  show("decision");
}

function age(passed_ms) {
  const minutes = Math.floor(passed_ms / 60_000);
  if (!(minutes >= 1)) return "less than a minute ago";
  return minutes === 1 ? "a minute ago" : `${minutes} minutes ago`;
}

/** Where the program could work. */
function places() {
  const all = session?.organizations ?? [];
  return all.filter((place) => place.status === "active" && place.projects.length);
}

function showProjects() {
  const chosen = places().find((place) => place.id === at("organization").value);
  fill(at("project"), chosen?.projects ?? [], chosen?.id === session.organization ? session.project : null);
  const may = (chosen?.scopes ?? []).map((scope) => MAY.get(scope) ?? scope);
  at("scopes").textContent = `It may there, for 90 days: ${may.join(", ")}.`;
}

function fill(select, names, chosen) {
  select.replaceChildren(...names.map((name) => new Option(name, name, false, name === chosen)));
}

async function decide(decision) {
  const place = decision === "approve" && { organization: at("organization").value, project: at("project").value };
  await ask("POST", "/v1/auth/device/decision", { user_code: asking.user_code, decision, ...place });
  if (decision === "deny") return show("denied");
  at("approved-words").textContent =
    `“${asking.client}” acts as ${session.user.email} in ${place.organization} / ${place.project}.`;
  show("approved");
}

function on(step, task) {
  at(`${step}-form`).addEventListener("submit", (event) => {
    event.preventDefault();
    void work(step, () => task(event));
  });
}

on("broken", begin);
on("log-in", logIn);
on("code", lookUp);
on("decision", (event) => decide(event.submitter.value));
at("organization").addEventListener("change", showProjects);
at("log-out").addEventListener("click", () => {
  const step = STEPS.find((each) => !at(each).hidden);
  void work(step, logOut);
});
at("user-code").value = new URLSearchParams(location.search).get("user_code")?.slice(0, 40) ?? "";
void begin();
