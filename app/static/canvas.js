// Draws a prepared graph with vis-network and reports clicks. Every text reaches the page through a canvas or textContent.
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

function show({ data, setTriggerValue, parentElement }, vis) {
  const root = parentElement.querySelector(".canvas");
  let shown = root.shown;
  if (shown?.token !== data.token) {
    shown?.network.destroy();
    shown = root.shown = draw(root, data, vis);
    legend(root.querySelector(".legend"), data.legend);
  }
  shown.report = (node) => setTriggerValue("clicked", node);
  shown.matches = data.matches && new Set(data.matches);
  if (shown.turn !== data.turn) select(shown, data.focus, data.asked);
  shown.turn = data.turn;
  shown.network.redraw();
}

function draw(root, data, vis) {
  const view = root.querySelector(".view");
  view.style.height = `${data.height}px`;
  const boxes = new Map(data.nodes.map((node) => [node.id, node]));
  const shown = { token: data.token, boxes, matches: null, focus: null, colours: colours(root) };
  const nodes = data.nodes.map((node) => ({ ...node, ctxRenderer: (place) => box(place, shown) }));
  const network = (shown.network = new vis.Network(view, { nodes: new vis.DataSet(nodes), edges: new vis.DataSet(data.edges) }, data.options));
  network.on("beforeDrawing", (context) => {
    recolour(shown, colours(root));
    data.frames.forEach((frame) => outline(context, frame, shown.colours, network.getScale() > 0.6));
  });
  network.on("click", ({ nodes }) => {
    if (!nodes.length) return network.selectNodes(boxes.has(shown.focus) ? [shown.focus] : []);
    shown.focus = nodes[0];
    shown.report(shown.focus);
  });
  view.addEventListener("wheel", (event) => event.ctrlKey || event.metaKey || event.stopPropagation(), { capture: true });
  const zoom = (factor) => network.moveTo({ scale: network.getScale() * factor, animation: { duration: 120 } });
  const actions = { in: () => zoom(1.4), out: () => zoom(1 / 1.4), fit: () => network.fit({ maxZoomLevel: 1 }) };
  for (const button of root.querySelectorAll("button")) button.onclick = actions[button.name];
  actions.fit();
  root.dataset.ready = "true";
  root.network = network;
  return shown;
}

function colours(root) {
  const style = getComputedStyle(root);
  const of = (name) => style.getPropertyValue(`--st-${name}`).trim();
  return { text: of("text-color"), paper: of("background-color"), line: of("border-color"), chosen: of("primary-color"), font: of("code-font") || "monospace" };
}

function recolour(shown, now) {
  if (shown.edgeColour === now.text) return void (shown.colours = now);
  shown.edgeColour = now.text;
  shown.colours = now;
  setTimeout(() => shown.network.setOptions({ edges: { color: { color: now.text, highlight: now.chosen, hover: now.chosen, opacity: 0.32 } } }));
}

function select(shown, node, asked) {
  if (node === shown.focus) return;
  shown.focus = node;
  if (node === null || !shown.boxes.has(node)) return shown.network.unselectAll();
  shown.network.selectNodes([node]);
  if (!asked) return;
  const { x, y } = shown.network.canvasToDOM(shown.network.getPosition(node));
  const { clientWidth, clientHeight } = shown.network.body.container;
  const visible = x > 40 && y > 40 && x < clientWidth - 40 && y < clientHeight - 40;
  if (!visible || shown.network.getScale() < 0.5) shown.network.moveTo({ position: shown.network.getPosition(node), scale: 0.9 });
}

function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

function box({ ctx, id, x, y, state }, shown) {
  const { boxWidth: width, boxHeight: height, lines, label, fill, dashed } = shown.boxes.get(id);
  const { text, paper, chosen, font } = shown.colours;
  const drawNode = () => {
    const [left, top] = [x - width / 2, y - height / 2];
    const faded = shown.matches && !shown.matches.has(id);
    ctx.globalAlpha = faded ? 0.25 : 1;
    ctx.fillStyle = paper;
    rounded(ctx, left, top, width, height, 4);
    ctx.fill();
    ctx.globalAlpha = (state.hover || state.selected ? 0.5 : 0.3) * (faded ? 0.3 : 1);
    ctx.fillStyle = fill;
    ctx.fill();
    ctx.globalAlpha = faded ? 0.25 : 1;
    ctx.lineWidth = state.selected ? 2.5 : 1.2;
    ctx.strokeStyle = state.selected ? chosen : fill;
    ctx.setLineDash(dashed ? [4, 3] : []);
    ctx.stroke();
    ctx.setLineDash([]);
    ctx.fillStyle = fill;
    rounded(ctx, left, top, 5, height, [4, 0, 0, 4]);
    ctx.fill();
    ctx.fillStyle = text;
    write(ctx, label, lines, { left: left + 12, top, room: width - 16, height, faded, font, scale: shown.network.getScale() });
  };
  return { drawNode, nodeDimensions: { width, height } };
}

// All lines where they can be read; from far away only the label, as large as the box allows; then nothing.
function write(ctx, label, lines, { left, top, room, height, faded, font, scale }) {
  const small = scale < 0.72;
  const size = small ? Math.min(10.5 / scale, height * 0.6) : 12;
  if (size * scale < 5) return;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  (small ? [label] : lines).forEach((line, i) => {
    ctx.globalAlpha = (i ? 0.72 : 1) * (faded ? 0.3 : 1);
    ctx.font = `${i ? "" : "600 "}${size}px ${font}`;
    const fits = Math.floor(room / (size * 0.602));
    ctx.fillText(line.length > fits ? `${line.slice(0, fits - 1)}…` : line, left, small ? top + height / 2 : top + 13 + i * 16);
  });
}

function outline(context, frame, { text, line, font }, named) {
  context.save();
  context.strokeStyle = line;
  context.fillStyle = text;
  context.globalAlpha = 0.05;
  rounded(context, frame.x, frame.y, frame.width, frame.height, 7);
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = 1;
  context.stroke();
  context.globalAlpha = 0.72;
  context.font = `11px ${font}`;
  context.textBaseline = "top";
  if (named) context.fillText(frame.label, frame.x + 10, frame.y + 7);
  context.restore();
}

function legend(root, entries) {
  root.replaceChildren(...entries.map(({ colour, name, mark }) => {
    const [entry, swatch] = [document.createElement("span"), document.createElement("i")];
    if (mark) swatch.className = mark;
    else swatch.style.background = colour;
    entry.append(swatch, document.createTextNode(name));
    return entry;
  }));
  const hint = document.createElement("span");
  hint.className = "hint";
  hint.textContent = "drag to move, Ctrl + wheel to zoom";
  root.append(hint);
}
