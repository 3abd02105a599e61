// The live log: follows one stream of one attempt, resumes behind the last byte, keeps the last lines only.
"use strict";

(() => {
  const box = document.getElementById("log");
  if (!box) return;
  const words = box.dataset;
  const streamChoice = document.getElementById("log-stream");
  const attemptChoice = document.getElementById("log-attempt");
  const followChoice = document.getElementById("log-follow");
  const wrapChoice = document.getElementById("log-wrap");
  const download = document.getElementById("log-download");
  const ending = document.getElementById("log-end");
  const MOST_LINES = 5000;
  const TAIL_BYTES = 512 * 1024;
  const LOST_START = 16 * 1024;        // a line of which so much came is shown without its start
  const base = `/api/v1/jobs/${encodeURIComponent(words.job)}/logs`;

  const live = () => document.getElementById("live");
  const encoder = new TextEncoder();
  let chosen = words.stream;           // by the visitor; empty: we choose
  let pinned = Number(words.attempt) || 0;
  let source = null;                   // the open connection
  let generation = 0;                  // of what is shown; answers for an older one are dropped
  let view = null;

  // --- showing ---------------------------------------------------------------------------------------------

  function freshView(stream, attempt, offset) {
    box.replaceChildren();
    ending.textContent = "";
    return {
      stream, attempt, offset, pending: "", rest: "", open: null, ended: false, frame: 0, pause: 500,
      painter: new LogText.Painter(words.long), skipFirst: offset > 0, cutShown: false,
    };
  }

  function showNote(text) {
    if (!view || view.cutShown) return;
    view.cutShown = true;
    const note = document.createElement("div");
    note.className = "log-note";
    note.textContent = text;
    box.prepend(note);
  }

  // The tail of a large log begins in the middle of a line: leave that line out, but keep a bar that goes on in it.
  function trimStart(lines) {
    const first = lines.length ? lines[0] : view.rest;
    const bar = first.indexOf("\r");
    if (lines.length && bar < 0) lines.shift();
    else if (lines.length) lines[0] = first.slice(bar + 1);
    else if (bar >= 0) view.rest = first.slice(bar + 1);
    else if (first.length < LOST_START && !view.ended) return;
    view.skipFirst = false;
    showNote(words.cut);
  }

  function draw() {
    // What was to be drawn may be closed already.
    if (!view) return;
    view.frame = 0;
    let text = view.rest + view.pending;
    view.pending = "";
    let lines = text.split("\n");
    view.rest = LogText.shorten(lines.pop());
    if (view.skipFirst) trimStart(lines);
    if (lines.length > MOST_LINES) {
      lines = lines.slice(-MOST_LINES);
      showNote(words.cut);
    }
    const piece = document.createDocumentFragment();
    for (const line of lines) {
      const element = view.open ?? document.createElement("div");
      view.open = null;
      view.painter.paint(element, line.endsWith("\r") ? line.slice(0, -1) : line);
      piece.append(element);
    }
    if (view.rest && !view.skipFirst) {
      view.open = view.open ?? document.createElement("div");
      view.painter.paint(view.open, view.rest, false);
      piece.append(view.open);
    }
    box.append(piece);
    const extra = box.childElementCount - MOST_LINES;
    if (extra > 0) {
      for (let i = 0; i < extra; i += 1) box.children[view.cutShown ? 1 : 0].remove();
      showNote(words.cut);
    }
    if (followChoice.checked) box.scrollTop = box.scrollHeight;
  }

  function take(text) {
    view.pending += text;
    if (!view.frame) view.frame = document.hidden ? setTimeout(draw, 50) : requestAnimationFrame(draw);
  }

  // --- the connection --------------------------------------------------------------------------------------

  function close() {
    if (source) source.close();
    source = null;
  }

  function connect() {
    close();
    if (!view || view.ended || document.hidden) return;
    const mine = generation;
    const query = new URLSearchParams({ follow: "true", offset: String(view.offset) });
    if (view.attempt) query.set("attempt", String(view.attempt));
    const stream = view.stream.split("/").map(encodeURIComponent).join("/");
    source = new EventSource(`${base}/${stream}?${query}`);
    source.onmessage = (event) => {
      if (mine !== generation) return;
      const data = JSON.parse(event.data);
      let text = data.text;
      let size = 0;
      if (text === undefined) {
        const bytes = Uint8Array.from(atob(data.base64), (char) => char.charCodeAt(0));
        text = new TextDecoder().decode(bytes);
        size = bytes.length;
      } else size = encoder.encode(text).length;
      if (data.attempt) view.attempt = data.attempt;
      view.offset = data.offset + size;
      view.pause = 500;
      if (ending.textContent) ending.textContent = "";
      take(text);
    };
    source.addEventListener("end", (event) => {
      if (mine !== generation) return;
      close();
      view.ended = true;
      take("");
      tellEnd(JSON.parse(event.data).reason, mine);
      setTimeout(checkLive, 500);
    });
    source.onerror = () => {
      if (mine !== generation) return;
      close();
      ending.textContent = words.lost;
      setTimeout(() => { if (mine === generation) connect(); }, view.pause);
      view.pause = Math.min(view.pause * 2, 10000);
    };
  }

  // The API tells in English why a log has ended; the console knows it in the visitor's language.
  async function tellEnd(reason, mine) {
    let text = reason;
    try {
      const answer = await fetch(`/parts/told?${new URLSearchParams({ text: reason })}`);
      if (answer.ok) text = await answer.text();
    } catch { /* in English then */ }
    if (mine === generation) ending.textContent = `■ ${text}`;
  }

  function label(name) {
    const [last, node] = name.split("/").reverse();
    const text = last.startsWith("rank-") ? `${words.rank} ${last.slice(5)}` : last === "platform" ? words.platform : last;
    return node ? `${text} · ${words.node} ${node.slice(5)}` : text;
  }

  // Opens the stream that is wanted now, from its last half megabyte on.
  async function open() {
    generation += 1;
    const mine = generation;
    close();
    let streams = [];
    try {
      const query = pinned ? `?attempt=${pinned}` : "";
      const answer = await fetch(base + query, { headers: { Accept: "application/json" } });
      if (answer.status === 401) { location.reload(); return; }
      if (answer.ok) streams = (await answer.json()).streams;
      else throw new Error(String(answer.status));
    } catch {
      if (mine !== generation) return;
      ending.textContent = words.lost;
      setTimeout(() => { if (mine === generation) open(); }, 3000);
      return;
    }
    if (mine !== generation) return;
    const wanted = chosen || live()?.dataset.defaultStream;
    const found = streams.find((one) => one.stream === wanted)
      ?? streams.find((one) => one.stream === "rank-0" && one.size > 0)
      ?? streams.find((one) => one.stream === "platform") ?? streams[0];
    streamChoice.replaceChildren(...streams.map((one) => {
      const option = new Option(label(one.stream), one.stream);
      option.selected = one === found;
      return option;
    }));
    streamChoice.hidden = streams.length === 0;
    if (!found) {
      view = null;
      box.replaceChildren();
      ending.textContent = words.none;
      return;
    }
    view = freshView(found.stream, found.attempt, Math.max(0, found.size - TAIL_BYTES));
    if (found.size === 0) ending.textContent = words.waiting;
    if (attemptChoice) attemptChoice.value = String(found.attempt);
    const address = new URLSearchParams({ stream: found.stream, attempt: String(found.attempt) });
    download.href = `/jobs/${encodeURIComponent(words.job)}/log?${address}`;
    connect();
  }

  // The job moved on: a first attempt, a new one, or the first line of a rank.
  function checkLive() {
    const state = live()?.dataset;
    if (!state || pinned) return;
    const attempt = Number(state.attempt);
    if (!view) { if (attempt || state.ended !== undefined) open(); return; }
    const moved = attempt > view.attempt;
    const better = !chosen && state.defaultStream && state.defaultStream !== view.stream
      && [...streamChoice.options].some((option) => option.value === state.defaultStream);
    if (moved || better) open();
  }

  // --- what the visitor does -------------------------------------------------------------------------------

  streamChoice.addEventListener("change", () => { chosen = streamChoice.value; open(); });
  attemptChoice?.addEventListener("change", () => { pinned = Number(attemptChoice.value); open(); });
  wrapChoice.addEventListener("change", () => box.classList.toggle("no-wrap", !wrapChoice.checked));
  followChoice.addEventListener("change", () => { if (followChoice.checked) box.scrollTop = box.scrollHeight; });
  let lastTop = 0;
  box.addEventListener("scroll", () => {
    // Whoever scrolls up wants to read; whoever returns to the end wants to follow.
    if (box.scrollHeight - box.scrollTop - box.clientHeight < 40) followChoice.checked = true;
    else if (box.scrollTop < lastTop) followChoice.checked = false;
    lastTop = box.scrollTop;
  }, { passive: true });
  new ResizeObserver(() => { if (followChoice.checked) box.scrollTop = box.scrollHeight; }).observe(box);
  // Browsers open six connections per host: a page in the background must not hold one.
  document.addEventListener("visibilitychange", () => { if (document.hidden) close(); else if (view && !view.ended) connect(); });
  document.addEventListener("htmx:afterSettle", checkLive);

  open();
})();
