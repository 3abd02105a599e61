// Curves of metrics: one chart per name, drawn again when new points come.
"use strict";

(() => {
  const FIRST = 4;   // charts that are shown at once; the others on demand
  const COLOURS = ["--line-1", "--line-2", "--line-3", "--line-4", "--line-5", "--line-6", "--line-7", "--line-8"];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const isEnded = () => document.getElementById("live")?.dataset.ended !== undefined;

  function shortNumber(value) {
    if (value === null || value === undefined) return "–";
    const size = Math.abs(value);
    if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
    return String(Number(value.toPrecision(4)));
  }

  // Loss first: it is what people look at; then accuracy, then by name.
  function importance(name) {
    const word = name.toLowerCase();
    if (word === "loss") return 0;
    if (word.includes("loss")) return 1;
    if (word.includes("acc")) return 2;
    return 3;
  }

  function readNumber(value) {
    const number = typeof value === "string" ? NaN : value;
    return Number.isFinite(number) ? number : null;
  }

  function isEvery(points, field) {
    return points.length > 0 && points.every((point) => typeof point[field] === "number");
  }

  function grows(points, field) {
    for (let i = 1; i < points.length; i += 1) if (points[i][field] < points[i - 1][field]) return false;
    return true;
  }

  class Chart {
    constructor(parent, title, words, format, least) {
      this.words = words;
      this.least = least;              // where given, the axis begins at 0 and goes at least so far
      this.format = format;
      this.key = "";
      this.figure = document.createElement("figure");
      this.figure.className = "chart";
      const caption = document.createElement("figcaption");
      const name = document.createElement("span");
      name.className = "chart-name";
      name.textContent = title;
      name.title = title;
      this.last = document.createElement("output");
      caption.append(name, this.last);
      this.place = document.createElement("div");
      this.figure.append(caption, this.place);
      parent.append(this.figure);
    }

    update(lines) {
      // lines: [{label, points}]; one x for all of them
      const all = lines.flatMap((line) => line.points);
      const axis = ["step", "epoch"].find((field) => isEvery(all, field) && lines.every((line) => grows(line.points, field))) ?? "time";
      const start = axis === "time" ? Math.min(...all.map((point) => point.time)) : 0;
      const at = (point) => (axis === "time" ? point.time - start : point[axis]);
      const xs = [...new Set(all.map(at))].sort((a, b) => a - b);
      // One point alone has no width: an empty neighbour gives it some.
      if (xs.length === 1) xs.push(xs[0] + 1);
      const place = new Map(xs.map((x, index) => [x, index]));
      const columns = lines.map((line) => {
        const column = new Array(xs.length).fill(undefined);
        for (const point of line.points) column[place.get(at(point))] = readNumber(point.value);
        return column;
      });
      const newest = lines[0].points[lines[0].points.length - 1];
      this.last.textContent = typeof newest.value === "string" ? newest.value : this.format(newest.value);
      this.last.classList.toggle("bad", readNumber(newest.value) === null);
      const data = [xs, ...columns];
      const key = JSON.stringify([axis, lines.map((line) => line.label)]);
      if (this.plot && key === this.key) this.plot.setData(data);
      else this.build(axis, lines.map((line) => line.label), data);
      this.key = key;
      this.figure.dataset.points = String(all.length);
    }

    build(axis, labels, data) {
      this.plot?.destroy();
      this.labels = labels;
      this.axis = axis;
      const text = css("--muted");
      const grid = { stroke: css("--grid"), width: 1 };
      const font = "11px system-ui, sans-serif";
      const side = { stroke: text, grid, ticks: { ...grid, size: 4 }, font };
      const format = this.format;
      this.plot = new uPlot({
        width: this.width(),
        height: 150,
        legend: { show: labels.length > 1, live: false },
        cursor: { points: { size: 6 }, y: false },
        scales: {
          x: { time: false },
          y: { range: (_, low, high) => this.least !== undefined && low !== null ? [0, Math.max(this.least, high * 1.1)] : (low === null ? [0, 1] : uPlot.rangeNum(low, low === high ? low + (Math.abs(low) || 1) : high, 0.1, true)) },
        },
        axes: [
          { ...side, size: 26, values: (_, values) => values.map(shortNumber) },
          format === sizeFormat
            // Ticks of memory stand at powers of two.
            ? { ...side, size: 66, incrs: Array.from({ length: 44 }, (_, power) => 2 ** power), values: (_, values) => values.map(format) }
            : { ...side, size: 52, values: (_, values) => values.map(format) },
        ],
        series: [
          { label: this.words[axis] },
          ...labels.map((label, index) => ({
            label,
            stroke: css(COLOURS[index % COLOURS.length]),
            width: 1.6,
            spanGaps: true,
            points: { show: data[0].length < 30, size: 4 },
            value: (_, value) => format(value),
          })),
        ],
        hooks: { setCursor: [(plot) => this.point(plot)] },
      }, data, this.place);
    }

    // The value under the pointer stands where the last one stood.
    point(plot) {
      const index = plot.cursor.idx;
      if (index === null || index === undefined) {
        if (this.shown !== undefined) { this.last.textContent = this.shown; this.shown = undefined; }
        return;
      }
      if (this.shown === undefined) this.shown = this.last.textContent;
      const values = plot.data.slice(1).map((column) => this.format(column[index])).join(" · ");
      this.last.textContent = `${this.words[this.axis]} ${shortNumber(plot.data[0][index])}: ${values}`;
    }

    width() {
      return Math.max(160, Math.floor(this.place.clientWidth || this.figure.clientWidth || 300));
    }

    resize() {
      this.plot?.setSize({ width: this.width(), height: 150 });
    }

    redraw() {
      if (!this.plot) return;
      this.build(this.axis, this.labels, this.plot.data);
    }
  }

  class Panel {
    constructor(box, group, format, least = () => undefined) {
      this.box = box;
      this.group = group;
      this.format = format;
      this.least = least;
      this.charts = new Map();
      this.all = false;
      this.finished = false;
      new ResizeObserver(() => { for (const chart of this.charts.values()) chart.resize(); }).observe(box);
      matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
        for (const chart of this.charts.values()) chart.redraw();
      });
      this.refresh();
    }

    async refresh() {
      const ended = isEnded();
      if (!document.hidden && !this.finished) {
        try {
          const answer = await fetch(this.box.dataset.source, { headers: { Accept: "application/json" } });
          if (!answer.ok) throw new Error(String(answer.status));
          this.show((await answer.json()).metrics);
          // Once more after the end: the last points come with it.
          this.finished = ended;
          this.complain(false);
        } catch {
          this.complain(true);
        }
      }
      if (!this.finished) setTimeout(() => this.refresh(), 3000);
    }

    complain(is) {
      let note = this.box.querySelector(".chart-fault");
      if (!is) { note?.remove(); return; }
      if (note) return;
      note = document.createElement("p");
      note.className = "chart-fault muted";
      note.textContent = this.box.dataset.failed;
      this.box.append(note);
    }

    show(metrics) {
      const groups = this.group(metrics.filter((metric) => metric.points.length), this.box.dataset);
      if (!groups.length) return;
      for (const element of this.box.querySelectorAll("[data-empty]")) element.remove();
      const shown = this.all ? groups : groups.slice(0, FIRST);
      for (const { title, lines } of shown) {
        let chart = this.charts.get(title);
        if (!chart) {
          chart = new Chart(this.box, this.title(title), this.box.dataset, this.format(title), this.least(title));
          this.charts.set(title, chart);
        }
        chart.update(lines.slice(0, COLOURS.length));
      }
      this.offerMore(groups.length - shown.length, metrics);
    }

    // Measures of the machine have names in the visitor's language.
    title(name) {
      return this.box.dataset[{ cpu: "cpu", memory_bytes: "memory" }[name]] ?? name;
    }

    offerMore(count, metrics) {
      this.more?.remove();
      if (count <= 0) return;
      this.more = document.createElement("button");
      this.more.type = "button";
      this.more.className = "plain more";
      this.more.textContent = `${this.box.dataset.more} (+${count})`;
      this.more.addEventListener("click", () => { this.all = true; this.show(metrics); });
      this.box.append(this.more);
    }
  }

  function byName(metrics) {
    return metrics
      .sort((a, b) => importance(a.name) - importance(b.name) || a.name.localeCompare(b.name))
      .map((metric) => ({ title: metric.name, lines: [{ label: metric.name, points: metric.points }] }));
  }

  // node-0/cpu and node-1/cpu are two lines of one chart.
  function byMeasure(metrics, words) {
    const groups = new Map();
    for (const metric of metrics) {
      const [node, ...rest] = metric.name.split("/");
      const title = rest.join("/");
      if (title === "cpu_seconds" || title === "processes") continue;
      if (!groups.has(title)) groups.set(title, []);
      groups.get(title).push({ label: `${words.rank} ${node.replace("node-", "")}`, points: metric.points });
    }
    return [...groups].map(([title, lines]) => ({ title, lines }));
  }

  function sizeFormat(value) {
    if (value === null || value === undefined) return "–";
    if (value >= 2 ** 30) return `${Number((value / 2 ** 30).toPrecision(3))} GiB`;
    return `${Number((value / 2 ** 20).toPrecision(3))} MiB`;
  }

  const metrics = document.getElementById("metrics");
  if (metrics) new Panel(metrics, byName, () => shortNumber);
  const system = document.getElementById("system");
  if (system) new Panel(system, byMeasure, (title) => (title.endsWith("memory_bytes") ? sizeFormat : shortNumber),
    // A thousandth of a core must not look like a busy machine.
    (title) => (title === "cpu" || title.endsWith("memory_bytes") ? 1 : undefined));
})();
