"use strict";

const $ = (id) => document.getElementById(id);
const percent = (share) => (share * 100).toFixed(1) + " %";
const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
// Places in answers are counted in characters, as Python does; a JavaScript string counts in halves of some.
const characters = (text) => Array.from(text);

function node(name, properties, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "share") made.style.setProperty("--share", value);
    else if (key in made) made[key] = value;
    else made.setAttribute(key, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// rows: [name, number as text, share of the full width].
function bars(rows) {
  const row = ([name, number, share]) =>
    node("li", { share: Math.min(Math.max(share, 0), 1) }, node("span", {}, name), node("span", { className: "number" }, number));
  return node("ol", { className: "bars" }, ...rows.map(row));
}

const classes = (found) =>
  bars(found.map((one) => (one.label === "value" ? [one.label, one.score.toFixed(3), 0] : [one.label, percent(one.score), one.score])));

function passage(text, spans) {
  const all = characters(text), made = node("p", { className: "passage" });
  let done = 0;
  for (const { start, end, label } of spans) {
    made.append(all.slice(done, start).join(""));
    made.append(node("mark", {}, all.slice(start, end).join(""), label ? node("small", {}, label) : ""));
    done = end;
  }
  made.append(all.slice(done).join(""));
  return made;
}

const pair = (model, task) => model.inputs[task].length === 2;
const row = (model, task, asked) => (pair(model, task) ? [asked.text, asked.second] : asked.text);

// What a model may do: the fields that it needs, what is asked of which route, and how the answer is drawn.
const TASKS = {
  fill_mask: {
    title: "Masked words", route: "fill_mask",
    fields: () => ["text"],
    body: (model, asked) => ({ inputs: asked.text }),
    draw: (answer) =>
      answer.flatMap((mask, number) => [
        answer.length > 1 ? node("h3", {}, `Mask ${number + 1}`) : null,
        bars(mask.map((one) => [one.text, percent(one.score), one.score])),
      ]),
  },
  classify: {
    title: "Classes", route: "predict",
    fields: (model) => (pair(model, "classify") ? ["text", "second"] : ["text"]),
    body: (model, asked) => ({ inputs: [row(model, "classify", asked)] }),
    draw: (answer) => [classes(answer[0])],
  },
  answer: {
    title: "Answer", route: "answer", wide: true,
    fields: () => ["text", "context"],
    body: (model, asked) => ({ inputs: { question: asked.text, context: asked.context } }),
    draw: (answer, model, asked) => [
      passage(asked.context, answer.answer ? [answer] : []),
      answer.answer ? null : node("p", {}, "The model finds no answer in the context."),
      bars(answer.answers.map((one) => [one.answer, percent(one.score), one.score])),
      node("p", { className: "soft" }, `No-answer score: ${answer.no_answer_score.toFixed(2)}`),
    ],
  },
  tag: {
    title: "Tagged words", route: "tag", wide: true,
    fields: () => ["text"],
    body: (model, asked) => ({ inputs: asked.text }),
    draw: (answer, model, asked) => [passage(asked.text, answer)],
  },
  embed: {
    title: "Similarity", route: "embed",
    fields: () => ["text", "sentences"],
    body: (model, asked) => ({ inputs: [asked.text, ...asked.sentences] }),
    draw([first, ...vectors], model, asked) {
      const cosine = (vector) => vector.reduce((sum, value, place) => sum + value * first[place], 0);
      const found = vectors.map((vector, place) => [asked.sentences[place], cosine(vector)]);
      found.sort((one, other) => other[1] - one[1]);
      return [
        bars(found.map(([text, score]) => [text, score.toFixed(3), score])),
        node("p", { className: "soft" }, `Cosine similarity of embeddings with ${first.length} dimensions`),
      ];
    },
  },
  rerank: {
    title: "Reranked sentences", route: "rerank",
    fields: () => ["text", "sentences"],
    body: (model, asked) => ({ query: asked.text, texts: asked.sentences }),
    draw: (answer, model, asked) => [bars(answer.map((one) => [asked.sentences[one.index], one.score.toFixed(3), one.score]))],
  },
  embed_sparse: {
    title: "Sparse vector", route: "embed_sparse",
    fields: () => ["text"],
    body: (model, asked) => ({ inputs: [asked.text] }),
    draw([terms]) {
      const best = terms.slice(0, 12), most = best.length ? best[0].value : 1;
      return [
        bars(best.map((one) => [one.text, one.value.toFixed(2), one.value / most])),
        node("p", { className: "soft" }, `The largest of ${terms.length} weights that are not zero`),
      ];
    },
  },
  tokenize: {
    title: "Tokens", route: "tokenize", wide: true,
    fields: (model) => ("answer" in model.inputs ? ["text", "context"] : ["text"]),
    body: (model, asked) => ({ inputs: "answer" in model.inputs ? [asked.text, asked.context] : [asked.text] }),
    draw(answer, model, asked) {
      const chips = (tokens) => tokens.map((one) => node("li", { className: one.special ? "special" : "" }, one.text || "␣", node("small", {}, String(one.id))));
      const limit = model.max_input_length ? ` of ${model.max_input_length}` : "";
      const masked = model.mask && asked.text.includes(model.mask) ? `; as a masked word, ${model.mask} is one token` : "";
      return answer.flatMap((tokens) => [
        node("ol", { className: "pieces", "aria-label": "Tokens, each with its id" }, ...chips(tokens)),
        node("p", { className: "soft" }, `${tokens.length}${limit} tokens${masked}`),
      ]);
    },
  },
};

const EXAMPLES = {
  second: "Then it went home to sleep.",
  context: "Paris is the capital of France. The river Seine runs through it, and two million people live there.",
  sentences: "A small animal rests.\nThe capital of France is Paris.\nIt rained all day in London.",
};
// What the form shows now. Whoever waits for an answer keeps what was asked in variables of its own: the form may change meanwhile.
let models = [], shown = null, looks = 0;

// Before the routes, where the page's own address has no slash at its end, as a proxy's prefix may be asked for.
const root = location.pathname.endsWith("/") ? "" : `./${location.pathname.split("/").pop()}/`;
for (const link of document.querySelectorAll('a[href="openapi.json"]')) link.setAttribute("href", root + "openapi.json");

async function call(route, key, body) {
  const headers = { "Content-Type": "application/json" };
  if (key) headers.Authorization = "Bearer " + key;
  const begin = performance.now();
  const answer = await fetch(root + route, body ? { method: "POST", headers, body: JSON.stringify(body) } : { headers });
  const read = await answer.json();
  const trip = performance.now() - begin;
  if (answer.ok) return { read, trip, stages: stages(answer.headers.get("Server-Timing") || "", trip) };
  const said = read.error && (read.error.message || read.error);
  throw Object.assign(new Error(said || `status ${answer.status}`), { status: answer.status });
}

// Milliseconds by stage, of Server-Timing and the round trip that the browser saw.
function stages(header, trip) {
  const told = Object.fromEntries([...header.matchAll(/(\w+);dur=([\d.]+)/g)].map(([, name, value]) => [name, Number(value)]));
  const { queue = 0, model = 0, total = 0 } = told;
  return { queue, model, gateway: Math.max(total - queue - model, 0), rest: Math.max(trip - total, 0) };
}

function section(title, ...children) {
  const id = "title-" + title.toLowerCase().replace(/\W+/g, "-");
  return node("section", { "aria-labelledby": id }, node("h2", { id }, title), ...children);
}

const STAGES = { queue: "Queue", model: "Model", gateway: "Gateway", rest: "Network" };

function times(rows) {
  const heads = Object.entries(STAGES).map(([key, name]) => node("th", { scope: "col" }, node("span", { className: "key " + key, "aria-hidden": "true" }), name));
  const line = ([title, { trip, stages: of }]) =>
    node("tr", {}, node("th", { scope: "row" }, title), ...Object.keys(STAGES).map((key) => node("td", {}, of[key].toFixed(1))),
      node("td", {}, trip.toFixed(1)),
      node("td", { "aria-hidden": "true" }, node("div", { className: "stack" }, ...Object.keys(STAGES).map((key) => node("i", { className: key, share: of[key] })))));
  const head = node("thead", {}, node("tr", {}, node("th", { scope: "col" }, "Task"), ...heads, node("th", { scope: "col" }, "Total"), node("td", { "aria-hidden": "true" })));
  const table = node("table", { className: "times" }, head, node("tbody", {}, ...rows.map(line)));
  return section("Time in milliseconds", node("div", { className: "scroll", tabIndex: 0, role: "group", "aria-label": "Time by stage" }, table));
}

const offered = (model) => Object.keys(TASKS).filter((task) => model.can.includes(task));
const silent = (model) => (offered(model).length || model.version === null ? "" : "This page has no form for this model; ask the model server.");

function show(model) {
  shown = model;
  const fields = new Set(offered(model).flatMap((task) => TASKS[task].fields(model)));
  for (const name of ["text", "second", "context", "sentences"]) $(name + "-field").hidden = !fields.has(name);
  $("send").hidden = !fields.size;
  $("text-label").textContent = fields.has("context") ? "Question" : fields.has("second") ? "First text" : "Text";
  $("text-hint").textContent = model.can.includes("fill_mask") ? `The model predicts the word at ${model.mask || "[MASK]"}.` : "";
  const examples = { ...EXAMPLES, text: fields.has("context") ? "Which river runs through Paris?" : model.can.includes("fill_mask") ? `The cat sat on the ${model.mask || "[MASK]"}.` : "The cat sat on the mat." };
  for (const [name, text] of Object.entries(examples)) if (!$(name).dataset.own) $(name).value = text;
  const limit = model.max_input_length ? `, longest input ${model.max_input_length} tokens` : "";
  $("about").textContent = model.version === null ? `${model.id} is not loaded yet; this page waits for it` : `${model.id}, version ${model.version}${limit}${model.live ? "" : ", not available now"}`;
  $("status").textContent = silent(model);
}

// Returns the models, and shows them unless a later look has.
async function look(key) {
  const turn = ++looks;
  const { read } = await call("info", key);
  if (turn !== looks) return read.models;
  models = read.models;
  const chosen = $("model").value;
  $("model").replaceChildren(...models.map((one) => node("option", { value: one.id }, one.id)));
  show(models.find((one) => one.id === chosen) || models[0]);
  $("model").value = shown.id;
  $("model-field").hidden = models.length < 2;
  $("key-field").hidden = !$("key").value;
  if (models.some((one) => one.version === null)) setTimeout(() => look(key).catch(failed), 1000);
  return read.models;
}

function failed(error) {
  if (error.status === 401) {
    $("key-field").hidden = $("send").hidden = false;
    $("key").focus();
  }
  $("about").textContent = shown ? $("about").textContent : "";
  $("status").textContent = error.status === 401 && !$("key").value ? "" : error.message;
}

const form = () => ({
  model: $("model").value, key: $("key").value, text: $("text").value, second: $("second").value, context: $("context").value,
  sentences: lines($("sentences").value),
});

async function askAll() {
  const first = form(), known = await look(first.key);
  // Before the first look that succeeded, there was no model to choose and no field to fill in.
  const asked = first.model ? first : { ...form(), key: first.key };
  const model = known.find((one) => one.id === asked.model);
  if (!model) throw new Error(`The model ${asked.model} is no longer served.`);
  const sections = [], rows = [];
  for (const name of offered(model)) {
    const task = TASKS[name];
    $("status").textContent = `Waiting for: ${task.title}`;
    let children;
    // One after another: each is timed by itself.
    try {
      const answer = await call(task.route, asked.key, { model: model.id, ...task.body(model, asked) });
      rows.push([task.title, answer]);
      children = task.draw(answer.read, model, asked);
    } catch (error) {
      if (error.status === 401) throw error;
      children = [node("p", { className: "alarm" }, error.message)];
    }
    sections.push(section(task.title, ...children));
    if (task.wide) sections.at(-1).className = "wide";
  }
  const count = sections.length;
  $("results").replaceChildren(node("div", { className: "columns" }, ...sections), ...(rows.length ? [times(rows)] : []));
  $("results").hidden = !count;
  $("status").textContent = count ? `${rows.length} of ${count} tasks answered by ${model.id}, version ${model.version}.` : silent(model);
}

let busy = false;
async function submit(event) {
  event.preventDefault();
  if (busy) return;
  busy = true;
  $("ask").setAttribute("aria-disabled", "true");
  try {
    await askAll();
  } catch (error) {
    failed(error);
  }
  busy = false;
  $("ask").removeAttribute("aria-disabled");
}

$("form").addEventListener("submit", submit);
$("form").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) submit(event);
});
$("form").addEventListener("input", (event) => { event.target.dataset.own = "yes"; });
$("model").addEventListener("change", () => {
  show(models.find((one) => one.id === $("model").value));
});
look("").catch(failed);
