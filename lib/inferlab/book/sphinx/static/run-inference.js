/* Run inference: replays recorded runs. Every token and every time stamp stands in the page, as JSON
   inside the element; nothing is fetched and nothing is made up. */
(() => {
  "use strict";

  const SLOWER = 10;
  const still = matchMedia("(prefers-reduced-motion: reduce)");

  const make = (tag, attributes = {}, ...children) => {
    const node = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    node.append(...children);
    return node;
  };
  const clock = (ms) => `${(ms / 1000).toFixed(2)} s`;
  const span = (ms) => (ms < 999.5 ? `${Number(ms.toPrecision(3))} ms` : clock(ms));
  const count = (n, word, many = `${word}s`) => `${n} ${n === 1 ? word : many}`;

  /* One run on the page: its tokens, its counters, its bars. show(ms) is all that changes it. */
  class Lane {
    constructor(run, prompt, scale, titled) {
      Object.assign(this, { run, scale, shown: 0 });
      this.first = run.ms[0];
      this.end = run.ms[run.ms.length - 1];
      this.tokens = run.answer.map((text) => make("span", {}, text));
      this.cells = {};
      this.bars = {};
      const beside = run.batch - 1;
      this.root = make(
        "div",
        { class: "ri-lane" },
        ...(titled ? [make("p", { class: "ri-name" }, run.label)] : []),
        this._text("prompt", `Prompt, ${count(prompt.length, "token")}`, prompt.map((t) => make("span", {}, t))),
        this._text("answer", `Answer, ${count(run.answer.length, "token")}`, this.tokens),
        ...(beside
          ? [make("p", { class: "ri-note" }, `${count(beside, "copy", "copies")} of this request ran beside it.`)]
          : []),
        make(
          "dl",
          { class: "ri-counts simple" },
          ...["Prefill passes", "Decode passes", "Passes in all", "Time"].map((name) => this._cell(name))
        ),
        make("dl", { class: "ri-bars simple" }, this._bar("prefill"), this._bar("decode"))
      );
      this.show(0);
    }

    _text(kind, name, tokens) {
      const title = make("p", { class: "ri-title" }, name);
      const box = make("div", { class: `ri-${kind}`, role: "group", "aria-label": name }, ...tokens);
      if (kind === "prompt") box.tabIndex = 0; // a long one scrolls
      return make("div", {}, title, box);
    }

    _cell(name) {
      this.cells[name] = make("dd");
      return make("div", {}, make("dt", {}, name), this.cells[name]);
    }

    _bar(phase) {
      const bar = make("span");
      const time = make("span", { class: "ri-time" });
      this.bars[phase] = (ms) => {
        bar.style.width = `${(100 * ms) / this.scale}%`;
        time.textContent = span(ms);
      };
      const row = make("dd", {}, make("span", { class: "ri-track" }, bar), time);
      return make("div", { class: `ri-bar ri-${phase}` }, make("dt", {}, phase), row);
    }

    show(ms) {
      const { run } = this;
      let n = ms < (run.ms[this.shown - 1] ?? 0) ? 0 : this.shown;
      while (n < run.ms.length && run.ms[n] <= ms) n += 1;
      if (n < this.shown) this.tokens.forEach((token) => token.classList.remove("ri-on"));
      for (let i = n < this.shown ? 0 : this.shown; i < n; i += 1) this.tokens[i].classList.add("ri-on");
      this.shown = n;
      this.root.dataset.phase = n === run.ms.length ? "done" : n ? "writing" : ms > 0 ? "reading" : "waiting";
      const passes = n ? run.passes[n - 1] : 0;
      const prefill = n ? run.passes[0] : 0;
      const values = [prefill, passes - prefill, passes, clock(Math.min(ms, this.end))];
      Object.values(this.cells).forEach((cell, i) => (cell.textContent = values[i]));
      this.bars.prefill(Math.min(ms, this.first));
      this.bars.decode(Math.max(0, Math.min(ms, this.end) - this.first));
    }

    get sentence() {
      const { run } = this;
      const what = count(run.answer.length, "token");
      return `${run.batch > 1 ? `${run.batch} answers at once, this one of ${what},` : what} in ${span(this.end)}`;
    }

    get passes() {
      const { passes } = this.run;
      const decode = passes[passes.length - 1] - passes[0];
      return `${count(passes[0], "prefill pass", "prefill passes")} and ${count(decode, "decode pass", "decode passes")}`;
    }
  }

  class RunInference extends HTMLElement {
    connectedCallback() {
      if (this.lanes) return;
      this.data = JSON.parse(this.querySelector("script").textContent);
      this.querySelector(".ri-static").remove();
      this.time = 0;
      this._controls();
      this._fill(this.request, this.data.requests.map((r, i) => [i, r.label]));
      this._runs();
    }

    disconnectedCallback() {
      this._stop();
    }

    _controls() {
      const select = (name, text) => {
        this[name] = make("select", { class: `ri-${name}` });
        return make("label", {}, make("span", {}, text), this[name]);
      };
      const button = (name, text) => (this[name] = make("button", { type: "button", class: `ri-${name}` }, text));
      this.slow = make("input", { type: "checkbox", class: "ri-slow" });
      this.says = make("p", { class: "ri-says", role: "status" });
      this.stage = make("div", { class: "ri-stage" });
      this.origin = make("p", { class: "ri-origin" });
      this.append(
        make(
          "div",
          { class: "ri-drive" },
          button("go", "Run"),
          button("next", "Next pass"),
          make("label", { class: "ri-check" }, this.slow, ` ${SLOWER} times slower`)
        ),
        make(
          "div",
          { class: "ri-choose" },
          select("request", "Request"),
          select("run", "Run as"),
          select("against", "Race against")
        ),
        this.stage,
        this.says,
        this.origin
      );
      this.request.onchange = () => this._runs();
      this.run.onchange = () => this._rivals();
      this.against.onchange = () => this._reset();
      this.go.onclick = () => (this.frame ? this._stop() : this._start());
      this.next.onclick = () => this._step();
      const calm = () => (this.next.hidden = !still.matches);
      still.addEventListener("change", calm);
      calm();
    }

    _fill(select, options) {
      const kept = select.value;
      select.replaceChildren(...options.map(([value, text]) => make("option", { value }, text)));
      if (options.some(([value]) => String(value) === kept)) select.value = kept;
    }

    _names() {
      return this.data.requests[this.request.value].runs.map((i) => [i, this.data.runs[i].label]);
    }

    _runs() {
      const kept = this.run.selectedOptions[0]?.textContent;
      this._fill(this.run, this._names());
      const same = [...this.run.options].find((o) => o.textContent === kept);
      if (same) this.run.value = same.value;
      this._rivals();
    }

    _rivals() {
      this._fill(this.against, [["", "nothing"], ...this._names().filter(([i]) => String(i) !== this.run.value)]);
      this.against.disabled = this.against.options.length === 1;
      this._reset();
    }

    _reset() {
      this._stop();
      const chosen = [this.run.value, this.against.value].filter((v) => v !== "").map((i) => this.data.runs[i]);
      const scale = Math.max(...chosen.map((run) => run.ms[run.ms.length - 1]));
      this.lanes = chosen.map((run) => new Lane(run, this.data.prompts[run.prompt], scale, chosen.length > 1));
      this.end = scale;
      this.stage.replaceChildren(...this.lanes.map((lane) => lane.root));
      const places = [...new Set(chosen.map((run) => this.data.machines[run.machine]))];
      this.origin.textContent = `Replays what was recorded: ${places.join("; ")}.`;
      this._rewind();
    }

    _rewind() {
      this.time = 0;
      this.read = false;
      this.says.textContent = "";
      this._show();
    }

    _start() {
      this._rewind();
      if (still.matches) {
        this.time = this.end;
        this._show();
        return;
      }
      let last = performance.now();
      const tick = () => {
        const now = performance.now();
        this.time += (now - last) / (this.slow.checked ? SLOWER : 1);
        last = now;
        this.frame = this.time < this.end ? requestAnimationFrame(tick) : 0;
        this._show();
      };
      this.frame = requestAnimationFrame(tick);
      this._label();
    }

    _stop() {
      cancelAnimationFrame(this.frame);
      this.frame = 0;
      this._label();
    }

    /* On to the next token of any lane, for whoever wants no motion. */
    _step() {
      if (this.time >= this.end) this._rewind();
      this.time = Math.min(...this.lanes.flatMap((lane) => lane.run.ms.filter((t) => t > this.time)));
      this._show();
    }

    _label() {
      this.go.textContent = this.frame ? "Stop" : this.time > 0 ? "Run again" : "Run";
    }

    _show() {
      this.lanes.forEach((lane) => lane.show(this.time));
      this._label();
      if (this.time >= this.end) this.says.textContent = this._result();
      else if (!this.read && this.time > 0 && this.lanes.every((lane) => lane.shown)) {
        this.read = true;
        const times = this.lanes.map((lane) => span(lane.first)).join(" and ");
        this.says.textContent = `Prompt read in ${times}.`;
      }
    }

    /* Said once, when all is written. */
    _result() {
      if (this.lanes.length === 1) return `Answer written: ${this.lanes[0].sentence}, ${this.lanes[0].passes}.`;
      const [fast, slow] = [...this.lanes].sort((a, b) => a.end - b.end);
      const times = Number((slow.end / fast.end).toPrecision(2));
      return `${fast.run.label}: ${fast.sentence}. ${slow.run.label}: ${slow.sentence}, ${times} times as long.`;
    }
  }

  customElements.define("run-inference", RunInference);
})();
