// What the page does by itself: ages that go on, the state of the stream, charts. Every screen is
// complete without it.
(() => {
  "use strict";
  const screen = document.getElementById("screen");
  const live = document.getElementById("live");

  // --- ages -----------------------------------------------------------------------------------

  // As `engine/surfaces/page/words.py` writes them.
  function age(seconds) {
    const whole = Math.max(0, Math.floor(seconds));
    if (whole < 60) return `${whole} s`;
    if (whole < 3600) return `${Math.floor(whole / 60)} min`;
    if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
    return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
  }

  // The server's clock counts: the browser's may be wrong.
  let ahead = 0;
  function setClock() {
    const shown = screen.querySelector(".moment time");
    if (shown) ahead = Date.now() - Date.parse(shown.dateTime);
  }

  function tick() {
    const now = Date.now() - ahead;
    for (const time of screen.querySelectorAll("time[data-since], time[data-until]")) {
      const { since, until } = time.dataset;
      const text = age((since ? now - Date.parse(since) : Date.parse(until) - now) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  }

  // --- the stream -----------------------------------------------------------------------------

  function show(state, word) {
    live.hidden = false;
    live.className = `live ${state}`;
    live.lastElementChild.textContent = word;
  }

  const listen = (name, act) => screen.addEventListener(name, act);
  listen("htmx:sse:after:connection", () => show("on", "live"));
  listen("htmx:sse:error", () => show("off", "reconnecting"));
  listen("htmx:sse:close", () => show("off", "not live"));
  listen("crowded", () => show("off", "not live: too many watch"));
  listen("htmx:after:swap", () => {
    setClock();
    drawAll();
  });

  // --- charts ---------------------------------------------------------------------------------

  const plots = new Map();
  const dark = matchMedia("(prefers-color-scheme: dark)");

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }

  function options(section, data, width) {
    const strokes = [colour("accent"), colour("good"), colour("busy"), colour("bad"), colour("faint"), colour("heat-3")];
    const axis = { stroke: colour("faint"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line"), width: 1 }, font: "11px system-ui, sans-serif" };
    // Without a cursor the legend has the latest value that is known.
    const latest = (values) => {
      let at = values.length - 1;
      while (at > 0 && values[at] == null) at--;
      return values[at];
    };
    const shown = (plot, value, series, at) => {
      const one = at == null || at === plot.data[0].length - 1 ? latest(plot.data[series]) : value;
      return one == null ? "–" : `${+one.toFixed(2)}`;
    };
    const rest = (plot) => {
      if (plot.cursor.idx == null) plot.setLegend({ idx: plot.data[0].length - 1 }, false);
    };
    const drawMarks = (plot) => {
      const { ctx, bbox } = plot;
      ctx.save();
      ctx.lineWidth = 2;
      ctx.setLineDash([4, 4]);
      for (const [time, kind] of JSON.parse(section.dataset.series).marks) {
        const x = plot.valToPos(time, "x", true);
        if (x < bbox.left || x > bbox.left + bbox.width) continue;
        ctx.strokeStyle = colour(kind === "leader" ? "bad" : "accent");
        ctx.beginPath();
        ctx.moveTo(x, bbox.top);
        ctx.lineTo(x, bbox.top + bbox.height);
        ctx.stroke();
      }
      ctx.restore();
    };
    return {
      width,
      height: 220,
      cursor: { drag: { x: false, y: false } },
      hooks: { ready: [rest], setData: [rest], setCursor: [rest], draw: [drawMarks] },
      scales: { y: { range: (_plot, _low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [{ ...axis, values: (_plot, at) => at.map((t) => new Date(t * 1000).toISOString().slice(11, at[1] - at[0] < 60 ? 19 : 16)) }, { ...axis, size: 48 }],
      series: [
        { label: "UTC", value: (_plot, at) => (at == null ? "–" : new Date(at * 1000).toISOString().slice(11, 19)) },
        ...data.names.map((label, i) => ({ label, stroke: strokes[i % strokes.length], width: 1.5, value: shown, points: { show: data.values[0].length < 3 }, spanGaps: true })),
      ],
    };
  }

  function draw(section) {
    const place = section.querySelector(".plot");
    const data = JSON.parse(section.dataset.series);
    const names = data.names.join("\n");
    const known = plots.get(section.id);
    if (known && known.names === names && known.place === place) {
      known.plot.setData(data.values);
      return;
    }
    if (known) known.plot.destroy();
    plots.delete(section.id);
    if (!data.values[0].length || !data.names.length) {
      place.textContent = "Nothing yet.";
      return;
    }
    place.textContent = "";
    const plot = new uPlot(options(section, data, place.clientWidth), data.values, place);
    plots.set(section.id, { plot, names, place });
  }

  function drawAll() {
    if (typeof uPlot === "undefined") return;
    screen.querySelectorAll(".chart").forEach(draw);
  }

  function redraw() {
    for (const { plot } of plots.values()) plot.destroy();
    plots.clear();
    drawAll();
  }

  // --- the keyboard ---------------------------------------------------------------------------

  document.addEventListener("keydown", (event) => {
    const isTyping = event.target.closest("input, textarea, select");
    if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
    const field = document.querySelector(".find input");
    if (field) {
      event.preventDefault();
      field.focus();
    }
  });

  dark.addEventListener("change", redraw);
  let resizing = 0;
  addEventListener("resize", () => {
    clearTimeout(resizing);
    resizing = setTimeout(redraw, 150);
  });
  setClock();
  drawAll();
  setInterval(tick, 1000);
})();
