"use strict";
// One question at a time. Items are written with textContent alone: whatever they hold is text, never markup.
(() => {
  const $ = (id) => document.getElementById(id);
  const settings = JSON.parse($("settings").textContent);
  const query = new URLSearchParams(location.search);
  const token = query.get("token") || "";
  const judge = settings.judge;
  // A window keeps its question when it is reloaded; another window gets another one.
  const client = sessionStorage.getItem("preflearn-client") || crypto.getRandomValues(new Uint32Array(2)).join("");
  sessionStorage.setItem("preflearn-client", client);
  // What was answered and not acknowledged yet, by window: two of them must not overwrite each other's.
  const PENDING = "preflearn-pending " + settings.source;
  const MINE = PENDING + " " + client;
  // No acknowledgement, but no refusal either: the disk is full, the file was removed, the server is busy.
  const TRY_AGAIN = [408, 503, 507];
  let asked = null;
  let busy = false;
  let shownAt = 0;
  let polls = 0;

  // Speaking with the server --------------------------------------------------------------------------------------------

  async function call(path, body) {
    const options = { headers: { "X-Preflearn-Token": token }, cache: "no-store" };
    if (body) {
      options.method = "POST";
      options.headers["Content-Type"] = "application/json";
      options.body = JSON.stringify(body);
    }
    const response = await fetch(path, options);
    if (response.ok) return response.json();
    const text = await response.text();
    let message = text;
    try { message = JSON.parse(text).error || text; } catch { /* plain text */ }
    const error = new Error(message);
    error.status = response.status;
    throw error;
  }

  // Send until it is acknowledged: the server counts a question once, however often its answer comes.
  async function sendSurely(path, body) {
    for (let wait = 500; ; wait = Math.min(2 * wait, 4000)) {
      try {
        const found = await call(path, body);
        banner("");
        return found;
      } catch (error) {
        if (error.status && !TRY_AGAIN.includes(error.status)) throw error;
        banner(error.status ? error.message : "The server does not answer. Your last answer is kept here and sent again until it does.");
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }

  function banner(text) {
    $("banner").textContent = text;
    $("banner").hidden = !text;
  }

  // Asking ----------------------------------------------------------------------------------------------------------------

  async function act(work) {
    if (busy) return;
    busy = true;
    document.body.classList.add("busy");
    try {
      show(await work());
    } catch (error) {
      banner(error.message);
    } finally {
      busy = false;
      document.body.classList.remove("busy");
      $("left").classList.remove("chosen");
      $("right").classList.remove("chosen");
    }
    polls = 0;
    refresh();
  }

  function answer(verdict) {
    // Too fast to have been read: the click was meant for the question before.
    if (!asked || !asked.question || performance.now() - shownAt < 120) return;
    if (verdict === "left" || verdict === "right") $(verdict).classList.add("chosen");
    const body = { judge, client, question: asked.question, left: asked.left.item, right: asked.right.item, verdict };
    if (settings.note && $("note").value.trim()) body.note = $("note").value.trim();
    act(async () => {
      localStorage.setItem(MINE, JSON.stringify(body));
      return deliver(MINE, body);
    });
  }

  // An answer is forgotten when it is acknowledged, or when the server says that it is about other items than its own.
  async function deliver(key, body) {
    try {
      const next = await sendSurely("api/answer", body);
      localStorage.removeItem(key);
      return next;
    } catch (error) {
      if (error.status === 400) localStorage.removeItem(key);
      throw error;
    }
  }

  function undo() {
    act(() => call("api/undo", { judge, client }));
  }

  async function start() {
    let refused = "";
    for (const key of Object.keys(localStorage).filter((name) => name === PENDING || name.startsWith(PENDING + " "))) {
      let body;
      try { body = JSON.parse(localStorage.getItem(key)); } catch { /* damaged */ }
      if (!body) {
        localStorage.removeItem(key);
        continue;
      }
      try {
        await deliver(key, { ...body, client });
      } catch (error) {
        if (error.status !== 400) throw error;
        refused = error.message;
      }
    }
    const found = await sendSurely("api/question?" + new URLSearchParams({ judge, client }));
    if (refused) banner("An earlier answer was not accepted: " + refused);
    return found;
  }

  function show(found) {
    asked = found;
    const none = !found.question;
    $("done").hidden = !none;
    document.querySelector(".cards").hidden = none;
    $("prompt").hidden = none;
    for (const id of ["equal", "skip"]) $(id).disabled = none;
    $("undo").disabled = !found.yours;
    if (none) {
      $("live").textContent = "Every pair has been answered.";
    } else {
      for (const side of ["left", "right"]) {
        fill($(side + "-content"), found[side]);
        fold(side);
        $("choose-" + side).setAttribute("aria-label", `The ${side} one is better: ${spoken(found[side])}`);
      }
      $("note").value = "";
      $("live").textContent = `Question ${found.yours + 1}. Left: ${spoken(found.left)}. Right: ${spoken(found.right)}.`;
      document.body.dataset.question = found.question;
    }
    shownAt = performance.now();
  }

  function spoken(item) {
    const first = item.fields.find((field) => field.value);
    return (first ? first.value : item.item).slice(0, 200);
  }

  // Items -----------------------------------------------------------------------------------------------------------------

  function make(tag, className, text) {
    const element = document.createElement(tag);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  }

  // What does not fit a card fades out and can be unfolded; nothing is cut off unseen.
  function fold(side) {
    const box = $(side + "-content");
    box.classList.remove("unfolded");
    measure(side);
    for (const image of box.querySelectorAll("img")) image.addEventListener("load", () => measure(side));
  }

  function measure(side) {
    const box = $(side + "-content");
    const open = box.classList.contains("unfolded");
    const clipped = box.scrollHeight > box.clientHeight + 4;
    box.classList.toggle("clipped", clipped && !open);
    $("unfold-" + side).hidden = !clipped && !open;
    $("unfold-" + side).textContent = open ? "Less" : "More";
    $("unfold-" + side).setAttribute("aria-label", `${open ? "Less" : "More"} of the ${side} one`);
    $("unfold-" + side).setAttribute("aria-expanded", String(open));
  }

  const ADDRESS = /(https?:\/\/[^\s<>"]+[^\s<>".,;:!?)\]])/;

  // Text in which addresses of the web can be opened; whatever else it holds stays text.
  function linked(element, text) {
    for (const part of text.split(ADDRESS)) {
      if (!ADDRESS.test(part)) {
        element.append(part);
        continue;
      }
      const link = make("a", "", part.length > 60 ? part.slice(0, 59) + "…" : part);
      link.href = part;
      link.target = "_blank";
      link.rel = "noopener noreferrer";
      element.append(link);
    }
    return element;
  }

  function fill(box, item) {
    box.replaceChildren();
    box.scrollTop = 0;
    // Short facts come before long texts, which may be folded.
    const facts = make("dl");
    const long = [];
    for (const field of item.fields) {
      if (field.kind === "picture") {
        const image = make("img");
        image.alt = field.label || field.value;
        image.src = field.source + "?" + new URLSearchParams({ token });
        box.append(image);
      } else if (field.kind === "missing") {
        box.append(make("p", "missing", "Picture missing: " + field.value));
      } else if (field.kind === "text" && field.label && field.value.length <= 80) {
        facts.append(make("dt", "", field.label), linked(make("dd"), field.value));
      } else {
        const target = field.label ? make("div") : box;
        if (field.label) target.append(make("p", "label", field.label));
        if (field.kind === "markdown") markdown(target, field.value);
        else target.append(linked(make("p", !field.label && field.value.length <= 80 ? "name" : "text"), field.value));
        if (field.label) long.push(target);
      }
    }
    if (facts.children.length) box.append(facts);
    box.append(...long);
  }

  // A small part of Markdown: headings, lists, code, bold, italics. No links, no pictures, no HTML.
  function markdown(box, text) {
    const lines = text.replace(/\r\n?/g, "\n").split("\n");
    let list = null;
    let paragraph = [];
    const flush = () => {
      if (paragraph.length) {
        const p = make("p");
        inline(p, paragraph.join("\n"));
        p.className = "text";
        box.append(p);
        paragraph = [];
      }
    };
    for (let at = 0; at < lines.length; at++) {
      const line = lines[at];
      const heading = /^#{1,6}\s+(.*)$/.exec(line);
      const bullet = /^\s*(?:([-*+])|\d+[.)])\s+(.*)$/.exec(line);
      if (/^\s*```/.test(line)) {
        flush();
        list = null;
        const code = [];
        for (at++; at < lines.length && !/^\s*```/.test(lines[at]); at++) code.push(lines[at]);
        box.append(make("pre", "", code.join("\n")));
      } else if (heading) {
        flush();
        list = null;
        const h = make("h3");
        inline(h, heading[1]);
        box.append(h);
      } else if (bullet) {
        flush();
        const tag = bullet[1] ? "UL" : "OL";
        if (!list || list.tagName !== tag) {
          list = make(tag);
          box.append(list);
        }
        const li = make("li");
        inline(li, bullet[2]);
        list.append(li);
      } else if (!line.trim()) {
        flush();
        list = null;
      } else {
        list = null;
        paragraph.push(line);
      }
    }
    flush();
  }

  function inline(box, text) {
    for (const part of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*|\*[^*\s][^*\n]*\*)/)) {
      if (/^`.+`$/.test(part)) box.append(make("code", "", part.slice(1, -1)));
      else if (/^\*\*.+\*\*$/.test(part)) box.append(make("strong", "", part.slice(2, -2)));
      else if (/^\*.+\*$/.test(part)) box.append(make("em", "", part.slice(1, -1)));
      else box.append(part);
    }
  }

  // The panel ---------------------------------------------------------------------------------------------------------------

  async function refresh() {
    let panel;
    try {
      panel = await call("api/panel?" + new URLSearchParams({ judge }));
    } catch { return; }
    showPanel(panel);
    // The model learns while the next question is read; look again until it has.
    if (panel.answers !== panel.given && polls++ < 20) setTimeout(refresh, 300 + 200 * polls);
  }

  const percent = (share) => (100 * share).toFixed(share > 0.995 ? 2 : 1) + " %";

  function showPanel(panel) {
    const top = /^top:(\d+)$/.exec(panel.goal);
    $("share-name").textContent = top ? `Of the ${top[1]} shown first, expected to belong there`
      : panel.goal.includes(">") ? "Probability that the order of the two is right" : "Pairs expected in the right order";
    $("share").textContent = percent(panel.share);
    curve(panel.history);
    $("worth").textContent = worth(panel);
    order(panel);
    consistency(panel.consistency);
    judges(panel.agreement);
    $("remark").textContent = panel.consistency.remark;
    $("remark").hidden = !panel.consistency.remark;
    document.body.dataset.learned = panel.answers;
  }

  function worth(panel) {
    const so = `${panel.answers} answer${panel.answers === 1 ? "" : "s"} about ${panel.items} items. `;
    const top = panel.top && panel.top < panel.items ? `The top ${panel.top === 1 ? "one is" : panel.top + " are"} settled. ` : "";
    if (panel.settled) return so + "The order has settled: further answers would change little.";
    if (panel.worth === null) return so + top + "Keep going: it is too early to say how many are needed.";
    const rounded = Math.min(panel.worth < 20 ? panel.worth : Math.round(panel.worth / 10) * 10, panel.left);
    return so + top + (rounded === 1 ? "About 1 more would settle the rest." : `About ${rounded} more would settle the rest.`);
  }

  function svg(tag, attributes, text) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    if (text) element.textContent = text;
    return element;
  }

  function curve(history) {
    const last = Math.max(history[history.length - 1][0], 1);
    const low = Math.min(0.5, ...history.map((point) => point[1]));
    const x = (n) => 30 + (262 * n) / last;
    const y = (share) => 66 - (58 * (share - low)) / (1 - low);
    const end = history[history.length - 1];
    $("curve").replaceChildren(
      svg("line", { x1: 30, x2: 292, y1: y(1), y2: y(1) }),
      svg("line", { x1: 30, x2: 292, y1: y(low), y2: y(low) }),
      svg("text", { x: 0, y: y(1) + 4 }, "100"),
      svg("text", { x: 0, y: y(low) + 4 }, String(Math.round(100 * low))),
      svg("text", { x: 30, y: 80 }, "0"),
      svg("text", { x: 292, y: 80, "text-anchor": "end" }, `${last} answers`),
      svg("polyline", { points: history.map(([n, share]) => `${x(n).toFixed(1)},${y(share).toFixed(1)}`).join(" ") }),
      svg("circle", { cx: x(end[0]), cy: y(end[1]), r: 3 }),
    );
  }

  function order(panel) {
    const low = Math.min(...panel.order.map((one) => one.low));
    const span = Math.max(...panel.order.map((one) => one.high)) - low || 1;
    const at = (value) => (100 * (value - low)) / span;
    $("order").replaceChildren(...panel.order.map((one, place) => {
      const li = make("li");
      const bar = make("span", "bar");
      const line = make("i");
      const dot = make("b");
      line.style.left = at(one.low) + "%";
      line.style.width = at(one.high) - at(one.low) + "%";
      dot.style.left = at(one.score) + "%";
      bar.append(line, dot);
      bar.setAttribute("role", "img");
      bar.setAttribute("aria-label", `score ${one.score.toFixed(2)}, from ${one.low.toFixed(2)} to ${one.high.toFixed(2)}`);
      const name = make("span", "item", one.item);
      name.title = `${one.item}: ${one.score.toFixed(2)}, 95 % between ${one.low.toFixed(2)} and ${one.high.toFixed(2)}`;
      li.append(make("span", "rank", String(place + 1)), name, bar);
      return li;
    }));
    const rest = panel.items - panel.order.length;
    $("order-more").textContent = (rest > 0 ? `and ${rest} more in order.csv. ` : "") + "Bars: 95 % intervals.";
  }

  function facts(id, lines) {
    $(id).replaceChildren(...lines.map((line) => make("li", "", line)));
  }

  function consistency(found) {
    const lines = [`${found.answers} given${found.equal ? `, ${found.equal} of them equal` : ""}`];
    if (found.repeated) lines.push(`${found.repeated_same} of ${found.repeated} repeated questions answered the same way`);
    if (found.triangles) lines.push(`${found.circles} of ${found.triangles} triangles go round in a circle`);
    if (found.example.length) lines.push(`for example ${found.example.map((name) => name.slice(0, 40)).join(" over ")} over ${found.example[0].slice(0, 40)}`);
    facts("consistency", lines);
  }

  function judges(found) {
    $("judges-panel").classList.toggle("several", found.judges.length > 1);
    const lines = [];
    for (const one of found.judges) {
      let line = `${one.judge}: ${one.answers} answer${one.answers === 1 ? "" : "s"}`;
      if (found.judges.length > 1 && one.agrees !== null) line += `, ${Math.round(100 * one.agrees)} % agree with the order of all`;
      if (one.reliability !== null) line += `, reliability ${one.reliability.toFixed(2)} of 1`;
      lines.push(line);
      const worst = found.judges.length > 1 && one.against[0];
      if (worst) lines.push(`${one.judge} alone: ${worst.winner.slice(0, 40)} over ${worst.loser.slice(0, 40)}`);
    }
    for (const pair of found.pairs) lines.push(`${pair.judges.join(" and ")}: same answer to ${pair.same} of ${pair.common} common questions`);
    const others = found.n_judges - found.judges.length;
    if (others > 0) lines.push(`and ${others} more judge${others === 1 ? "" : "s"}`);
    facts("judges", lines);
  }

  // Names and links -----------------------------------------------------------------------------------------------------------

  function linkFor(name) {
    return location.pathname + "?" + new URLSearchParams({ token, judge: name });
  }

  function askName(title, go) {
    $("name-title").textContent = title;
    $("name").value = "";
    $("name-dialog").onclose = () => {
      const name = $("name").value.trim();
      if ($("name-dialog").returnValue === "go" && name) go(name);
    };
    $("name-dialog").returnValue = "";
    $("name-dialog").showModal();
  }

  $("name-go").value = "go";
  $("name-cancel").addEventListener("click", () => $("name-dialog").close(""));
  $("judge").addEventListener("click", () => askName("Who is judging?", (name) => location.assign(linkFor(name))));
  $("invite").addEventListener("click", () => askName("Name of the other judge", async (name) => {
    const link = new URL(linkFor(name), location.href).href;
    try {
      await navigator.clipboard.writeText(link);
      banner(`The link for ${name} is in the clipboard.`);
    } catch {
      banner(`The link for ${name}: ${link}`);
    }
  }));

  // Clicks and keys -------------------------------------------------------------------------------------------------------------

  for (const side of ["left", "right"]) {
    $(side).addEventListener("click", (event) => {
      // Neither marking text nor opening a link is choosing.
      if (event.target.closest("a, .unfold")) return;
      if (String(getSelection()) && !event.target.closest("button")) return;
      answer(side);
    });
  }
  for (const side of ["left", "right"]) {
    $("unfold-" + side).addEventListener("click", () => {
      $(side + "-content").classList.toggle("unfolded");
      measure(side);
    });
  }
  addEventListener("resize", () => { for (const side of ["left", "right"]) measure(side); });
  // A window that is closed hands its question back, so that the judge who returns gets it again.
  addEventListener("pagehide", () => {
    if (asked && asked.question) navigator.sendBeacon("api/leave?" + new URLSearchParams({ token, judge, client }));
  });
  $("equal").addEventListener("click", () => answer("equal"));
  $("skip").addEventListener("click", () => answer("skip"));
  $("undo").addEventListener("click", undo);

  const KEYS = {
    ArrowLeft: () => answer("left"), ArrowRight: () => answer("right"), "=": () => answer("equal"), e: () => answer("equal"),
    ArrowUp: () => answer("equal"), s: () => answer("skip"), u: undo, Backspace: undo,
  };
  document.addEventListener("keydown", (event) => {
    if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || $("name-dialog").open) return;
    if (event.target.closest && event.target.closest("textarea, input")) return;
    const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
    if (!KEYS[key]) return;
    event.preventDefault();
    KEYS[key]();
  });

  if (settings.question) {
    $("prompt").textContent = settings.question;
    document.title = settings.question;
  }
  $("note-box").hidden = !settings.note;
  $("source").textContent = settings.source.split(/[\\/]/).pop();
  $("judge").textContent = judge;
  $("file").textContent = settings.file;
  $("board").href = "board?" + new URLSearchParams({ token });
  $("downloads").replaceChildren(...["order.csv", "answers.jsonl", "board.html", "report.html", "model.preflearn"].map((name) => {
    const link = make("a", "", name);
    link.href = "download/" + name + "?" + new URLSearchParams({ token });
    link.download = name;
    return link;
  }));
  act(start);
  setInterval(() => { if (!document.hidden && !busy) refresh(); }, 15000);
})();
