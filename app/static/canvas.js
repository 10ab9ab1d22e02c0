// Shows a prepared graph with vis-network and reports what is done to it.
const kindColours = { pointwise: "#56B4E9", reduction: "#E69F00", template: "#009E73", extern: "#8C8C8C", layout: "#D55E00" };
const NEAR = 6; // pixels between the pointer and an edge that it touches
let library;

function vis(source) {
  library ??= new Promise((resolve, reject) => {
    if (window.vis?.Network) return resolve(window.vis);
    const script = document.createElement("script");
    script.src = source;
    script.onload = () => resolve(window.vis);
    script.onerror = reject;
    document.head.append(script);
  });
  return library;
}

export default function (component) {
  let left = false;
  vis(component.data.library).then((vis) => left || show(component, vis));
  return () => { left = true; };
}

// Rows from columns: a value for all, a list, or a list of places among the values that there are.
function rows({ count, same, each, few }) {
  return Array.from({ length: count }, (_, i) => {
    const row = { ...same };
    for (const key in each) row[key] = each[key][i];
    for (const key in few) row[key] = few[key].values[few[key].at[i]];
    return row;
  });
}

function show({ data, setTriggerValue, parentElement }, vis) {
  const root = parentElement.querySelector(".canvas");
  let shown = root.shown;
  if (shown?.token !== data.token) {
    const stay = shown && { position: shown.network.getViewPosition(), scale: shown.network.getScale(), focus: shown.focus, anchor: anchor(shown) };
    shown?.network.destroy();
    shown = root.shown = draw(root, data, vis);
    legend(root.querySelector(".legend"), data.legend);
    settle(shown, data, stay);
  }
  shown.report = (kind, id, second) => setTriggerValue("seen", { kind, id, second });
  shown.matches = data.matches && new Set(data.matches);
  if (shown.turn !== data.turn) select(shown, data.focus, data.second, data.asked);
  const found = data.matches?.join(" ") ?? "";
  if (found && found !== shown.found) fit(shown, new Map(data.matches.map((id) => [id, shown.boxes.get(id)])));
  shown.found = found;
  shown.turn = data.turn;
  shown.network.redraw();
  root.dataset.ready = "true";
}

function draw(root, data, vis) {
  const view = root.querySelector(".view");
  view.style.height = `${data.height}px`;
  const nodes = rows(data.nodes);
  const edges = rows(data.edges);
  for (const edge of edges) edge.touch = touchable(edge);
  const heat = data.legend.some((entry) => entry.ramp);
  for (const node of nodes) Object.assign(node, { heat, label: node.lines[0], shape: "custom" });
  const boxes = new Map(nodes.map((node) => [node.id, node]));
  const frames = new Map(rows(data.frames).map((frame) => [frame.id, { ...frame, boxWidth: frame.width, boxHeight: frame.height }]));
  const shown = { token: data.token, root, data, boxes, frames, edges, bundles: bundle(edges), matches: null, focus: null, second: null, hover: null, edge: null, colours: colours(root), taken: data.taken };
  const drawn = nodes.map(({ id, x, y, boxWidth, boxHeight }) => ({ id, x, y, shape: "custom", ctxRenderer: (place) => box(place, shown, boxWidth, boxHeight) }));
  const network = (shown.network = new vis.Network(view, { nodes: new vis.DataSet(drawn), edges: new vis.DataSet([]) }, data.options));
  network.on("beforeDrawing", (context) => background(context, shown));
  network.on("click", (event) => click(event, shown));
  network.on("doubleClick", ({ pointer }) => toggle(shown, under(pointer.canvas, shown)));
  view.onmousemove = (event) => hover(event, shown);
  view.onmouseleave = () => tip(shown, null);
  view.addEventListener("wheel", (event) => event.ctrlKey || event.metaKey || event.stopPropagation(), { capture: true });
  const zoom = (factor) => network.moveTo({ scale: network.getScale() * factor, animation: { duration: 120 } });
  const actions = { in: () => zoom(1.4), out: () => zoom(1 / 1.4), fit: () => fit(shown), png: () => save(shown) };
  for (const button of root.querySelectorAll(".tools button")) button.onclick = actions[button.name];
  replay(shown);
  root.network = network;
  return shown;
}

// Where the view stands after a new picture: at the item that was opened or closed, else on the whole, else legible.
function anchor(shown) {
  const id = shown.pressed;
  const item = id && (shown.boxes.get(id) ?? shown.frames.get(id));
  return item && { id, at: shown.network.canvasToDOM(topLeft(item)) };
}

const topLeft = (item) => ("width" in item ? { x: item.x, y: item.y } : { x: item.x - item.boxWidth / 2, y: item.y - item.boxHeight / 2 });

function settle(shown, data, stay) {
  const { network } = shown;
  const item = stay?.anchor && (shown.boxes.get(stay.anchor.id) ?? shown.frames.get(stay.anchor.id));
  if (item) {
    const { clientWidth, clientHeight } = network.body.container;
    const corner = topLeft(item);
    const { at } = stay.anchor;
    network.moveTo({ scale: stay.scale, position: { x: corner.x + (clientWidth / 2 - at.x) / stay.scale, y: corner.y + (clientHeight / 2 - at.y) / stay.scale } });
    return;
  }
  fit(shown);
}

// Left, top, right and bottom of all that is drawn.
function extent({ boxes, frames, edges, data }) {
  const found = [Infinity, Infinity, -Infinity, -Infinity];
  const take = (left, top, right, bottom) => {
    found[0] = Math.min(found[0], left);
    found[1] = Math.min(found[1], top);
    found[2] = Math.max(found[2], right);
    found[3] = Math.max(found[3], bottom);
  };
  for (const { x, y, boxWidth, boxHeight } of boxes.values()) take(x - boxWidth / 2, y - boxHeight / 2, x + boxWidth / 2, y + boxHeight / 2);
  for (const { x, y, width, height } of frames.values()) take(x, y, x + width, y + height);
  for (const { x, y } of data.headings) take(x, y - 4, x, y);
  for (const { route } of edges) for (let i = 0; i < route.length; i += 2) take(route[i], route[i + 1], route[i], route[i + 1]);
  return found;
}

// The whole picture, or some of its boxes, at their own size where there is room for that.
function fit(shown, some) {
  const [left, top, right, bottom] = extent(some ? { boxes: some, frames: new Map(), edges: [], data: { headings: [] } } : shown);
  if (!Number.isFinite(left)) return;
  const { clientWidth, clientHeight } = shown.network.body.container;
  const scale = Math.min(1, (clientWidth - 40) / (right - left), (clientHeight - 40) / (bottom - top));
  shown.network.moveTo({ scale, position: { x: (left + right) / 2, y: (top + bottom) / 2 } });
}

function colours(root) {
  const style = getComputedStyle(root);
  const of = (name) => style.getPropertyValue(`--st-${name}`).trim();
  return { text: of("text-color"), paper: of("background-color"), line: of("border-color"), chosen: of("primary-color"), font: of("code-font") || "monospace" };
}

function state(shown) {
  return { colours: shown.colours, scale: shown.exporting ?? shown.network.getScale() };
}

function background(context, shown) {
  shown.colours = shown.exporting ? shown.colours : colours(shown.root);
  const now = state(shown);
  for (const heading of shown.data.headings) paintHeading(context, heading, now);
  for (const frame of shown.frames.values()) paintFrame(context, frame, { ...now, selected: frame.id === shown.focus, hover: frame.id === shown.hover });
  const near = shown.focus ? shown.edges.filter(({ from, to }) => from === shown.focus || to === shown.focus) : [];
  paintEdges(context, shown.bundles, { ...now, quiet: Boolean(shown.matches) });
  paintNear(context, near, now);
  if (shown.edge) paintNear(context, [shown.edge], now);
  for (const frame of shown.frames.values()) paintTitle(context, frame, now);
  if (shown.data.steps.length) paintJoints(context, shown.data.steps, shown.taken, shown.boxes, now);
}

function box({ ctx, id, x, y, state: { hover, selected } }, shown, width, height) {
  const node = shown.boxes.get(id);
  const drawNode = () =>
    paintBox(ctx, node, {
      selected: id === shown.focus,
      second: id === shown.second,
      hover,
      faded: shown.matches && !shown.matches.has(id),
      ...state(shown),
    });
  return { drawNode, nodeDimensions: { width, height } };
}

// The box, else the innermost frame, at a place of the picture; and whether the place is on its sign.
function under({ x, y }, shown) {
  const inside = ({ left, top, width, height }) => x >= left && x <= left + width && y >= top && y <= top + height;
  const onBox = [...shown.boxes.values()].find((node) => inside({ left: node.x - node.boxWidth / 2, top: node.y - node.boxHeight / 2, width: node.boxWidth, height: node.boxHeight }));
  if (onBox) return { item: onBox, opens: onBox.opens, sign: onBox.opens && x > onBox.x + onBox.boxWidth / 2 - 22 && y < onBox.y - onBox.boxHeight / 2 + 22 };
  const frame = [...shown.frames.values()].reverse().find((item) => inside({ left: item.x, top: item.y, width: item.width, height: item.height }));
  return frame && { item: frame, opens: frame.closes, sign: frame.closes && y < frame.y + 26 && x > frame.x + frame.width - 28 };
}

function edgeUnder({ x, y }, shown) {
  const reach = NEAR / shown.network.getScale();
  let best = null;
  let least = reach;
  for (const edge of shown.edges) {
    const distance = distanceTo(edge, x, y);
    if (distance < least || (distance < reach && edge.kind === "refused" && best?.kind !== "refused")) [best, least] = [edge, distance];
  }
  return best;
}

function click({ event, pointer }, shown) {
  const found = under(pointer.canvas, shown);
  const edge = found && shown.boxes.has(found.item.id) ? null : edgeUnder(pointer.canvas, shown);
  if (edge && (edge.kind === "refused" || !found || found.item.kind === "call")) return pair(shown, edge.from, edge.to);
  if (!found) return;
  if (found.sign) return toggle(shown, found);
  const id = found.item.id;
  if (found.item.kind === "call") return;
  if (event.srcEvent?.shiftKey && shown.focus && shown.focus !== id) return pair(shown, shown.focus, id);
  [shown.focus, shown.second] = [id, null];
  shown.network.redraw();
  shown.report("node", id);
}

function pair(shown, first, second) {
  [shown.focus, shown.second] = [first, second];
  shown.network.redraw();
  shown.report("pair", first, second);
}

function toggle(shown, found) {
  if (!found?.opens) return;
  shown.pressed = found.item.id;
  shown.report("toggle", found.item.id);
}

function hover(event, shown) {
  const view = shown.root.querySelector(".view").getBoundingClientRect();
  const at = { x: event.clientX - view.x, y: event.clientY - view.y };
  const place = shown.network.DOMtoCanvas(at);
  const found = under(place, shown);
  const edge = found && shown.boxes.has(found.item.id) ? null : edgeUnder(place, shown);
  const hovered = found?.item.id ?? null;
  if (edge !== shown.edge || hovered !== shown.hover) {
    [shown.edge, shown.hover] = [edge, hovered];
    shown.network.redraw();
  }
  shown.root.querySelector(".view").style.cursor = found || edge ? "pointer" : "grab";
  tip(shown, edge ? `${name(shown, edge.from)} → ${name(shown, edge.to)}\n${edge.title}` : found?.item.title, at);
}

const name = (shown, id) => (shown.boxes.get(id) ?? shown.frames.get(id))?.label ?? id;

function tip(shown, text, at) {
  const element = shown.root.querySelector(".tip");
  element.style.visibility = text ? "visible" : "hidden";
  if (!text) return;
  element.textContent = text.slice(0, 1200);
  const width = shown.root.clientWidth;
  element.style.left = `${Math.min(at.x + 14, Math.max(0, width - element.offsetWidth - 8))}px`;
  element.style.top = `${at.y + 16}px`;
}

function select(shown, node, second, asked) {
  shown.second = second;
  if (node === shown.focus) return;
  const item = shown.boxes.get(node) ?? shown.frames.get(node);
  shown.focus = item ? node : null;
  if (!item || !asked) return;
  const centre = "width" in item ? { x: item.x + item.width / 2, y: item.y + item.height / 2 } : { x: item.x, y: item.y };
  const { x, y } = shown.network.canvasToDOM(centre);
  const { clientWidth, clientHeight } = shown.network.body.container;
  const visible = x > 40 && y > 40 && x < clientWidth - 40 && y < clientHeight - 40;
  if (!visible || shown.network.getScale() < 0.45) shown.network.moveTo({ position: centre, scale: 0.9 });
}

function replay(shown) {
  const bar = shown.root.querySelector(".replay");
  const { steps } = shown.data;
  bar.style.display = steps.length ? "flex" : "none";
  const [slider, text, play] = [bar.querySelector("input"), bar.querySelector("span"), bar.querySelector("button")];
  slider.max = steps.length;
  slider.value = shown.taken;
  const tell = () => {
    shown.taken = Number(slider.value);
    text.textContent = shown.taken ? `${shown.taken} of ${steps.length}: ${steps[shown.taken - 1].text}` : `none of ${steps.length} fusions`;
    shown.network?.redraw();
  };
  slider.oninput = tell;
  slider.onchange = () => shown.report("taken", slider.value);
  let running = null;
  const halt = () => { clearInterval(running); running = null; play.textContent = "▶"; };
  play.onclick = () => {
    if (running) return halt();
    if (Number(slider.value) >= steps.length) slider.value = 0;
    play.textContent = "❚❚";
    running = setInterval(() => {
      if (!shown.root.isConnected || shown.root.shown !== shown) return halt();
      slider.value = Number(slider.value) + 1;
      tell();
      if (Number(slider.value) >= steps.length) { halt(); slider.onchange(); }
    }, Math.max(60, Math.min(500, 12000 / steps.length)));
  };
  tell();
}

function legend(root, entries) {
  root.replaceChildren(...entries.map((entry) => {
    const [line, swatch] = [document.createElement("span"), document.createElement("i")];
    if (entry.ramp) {
      swatch.className = "ramp";
      swatch.style.background = `linear-gradient(90deg, ${entry.ramp})`;
      line.append(document.createTextNode(`${entry.name}: ${entry.low}`), swatch, document.createTextNode(entry.high));
      return line;
    }
    if (entry.mark) swatch.className = entry.mark;
    else swatch.style.background = entry.colour;
    line.append(swatch, document.createTextNode(entry.name));
    return line;
  }));
}

// The whole picture at twice its size, or as large as a canvas may be.
function save(shown) {
  const [left, top, right, bottom] = extent(shown);
  const margin = 24;
  const [width, height] = [right - left + 2 * margin, bottom - top + 2 * margin];
  const scale = Math.min(2, 12000 / width, 12000 / height);
  const canvas = Object.assign(document.createElement("canvas"), { width: Math.round(width * scale), height: Math.round(height * scale) });
  const context = canvas.getContext("2d");
  context.fillStyle = shown.colours.paper;
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.scale(scale, scale);
  context.translate(margin - left, margin - top);
  shown.exporting = 1;
  background(context, shown);
  for (const node of shown.boxes.values()) paintBox(context, node, { selected: node.id === shown.focus, second: node.id === shown.second, hover: false, faded: shown.matches && !shown.matches.has(node.id), ...state(shown) });
  shown.exporting = undefined;
  canvas.toBlob((blob) => {
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: "fusion.png" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}
