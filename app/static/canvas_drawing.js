// What is painted on the canvas of the fusion graph. Every text reaches it through fillText; nothing is parsed as HTML.
const SAVED = "#CC79A7", REFUSED = "#D55E00";

function rounded(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, radius);
}

// Black or white, whichever is legible on `colour`.
function inkOn(colour) {
  const [red, green, blue] = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
  return 0.299 * red + 0.587 * green + 0.114 * blue > 140 ? "#14171A" : "#FFFFFF";
}

function hatch(context, left, top, width, height, colour, alpha) {
  context.save();
  context.clip();
  context.globalAlpha = alpha;
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let x = left - height; x < left + width; x += 7) {
    context.moveTo(x, top + height);
    context.lineTo(x + height, top);
  }
  context.stroke();
  context.restore();
}

function paintBox(context, node, state) {
  const { x, y, boxWidth: width, boxHeight: height, fill, marks, heat } = node;
  const { selected, second, hover, faded, scale, colours } = state;
  const [left, top] = [x - width / 2, y - height / 2];
  const veil = faded ? 0.22 : 1;
  context.globalAlpha = veil;
  context.fillStyle = colours.paper;
  rounded(context, left, top, width, height, 5);
  context.fill();
  context.globalAlpha = (heat ? 0.94 : scale < 0.3 ? 0.8 : hover || selected ? 0.42 : 0.24) * veil;
  context.fillStyle = fill;
  context.fill();
  if (scale > 0.3 && marks.includes("again")) hatch(context, left, top, width, height, heat ? inkOn(fill) : fill, 0.55 * veil);
  context.globalAlpha = veil;
  const chosen = selected || second;
  rounded(context, left, top, width, height, 5);
  context.lineWidth = chosen ? 3 : hover ? 2 : 1.2;
  context.strokeStyle = selected ? colours.chosen : second ? REFUSED : heat ? colours.line : fill;
  if (scale > 0.2 || chosen) context.stroke();
  if (scale < 0.2) return;
  if (!heat && node.work !== "mixed") {
    context.fillStyle = fill;
    rounded(context, left, top, 5, height, [5, 0, 0, 5]);
    context.fill();
  }
  if (scale > 0.3) paintMarks(context, node, left, top, heat ? inkOn(fill) : colours.text);
  paintBar(context, node, left, top);
  const ink = heat ? inkOn(fill) : colours.text;
  write(context, node, { left: left + (node.work === "mixed" || heat ? 10 : 13), top, room: width - (node.opens ? 26 : 18), height, ink, veil, font: colours.font, scale });
  if (node.opens && scale > 0.55) paintSign(context, left + width - 11, top + 11, "+", ink, hover ? 0.95 : 0.5);
}

// A library call has a second border, a layout copy a folded corner.
function paintMarks(context, { boxWidth: width, boxHeight: height, marks }, left, top, ink) {
  if (marks.includes("library")) {
    context.save();
    context.globalAlpha *= 0.5;
    context.lineWidth = 1;
    context.strokeStyle = ink;
    rounded(context, left + 2.5, top + 2.5, width - 5, height - 5, 3);
    context.stroke();
    context.restore();
  }
  if (marks.includes("copy")) {
    context.fillStyle = REFUSED;
    context.beginPath();
    context.moveTo(left + width - 13, top + height);
    context.lineTo(left + width, top + height - 13);
    context.lineTo(left + width, top + height);
    context.fill();
  }
}

// What kinds of work a module holds.
function paintBar(context, { boxWidth: width, boxHeight: height, bar }, left, top) {
  let x = left + 6;
  for (const [colour, share] of bar) {
    context.fillStyle = colour;
    context.fillRect(x, top + height - 6, (width - 12) * share, 3);
    x += (width - 12) * share;
  }
}

function paintSign(context, x, y, sign, ink, alpha) {
  context.save();
  context.globalAlpha *= alpha;
  context.strokeStyle = ink;
  context.lineWidth = 1.3;
  context.beginPath();
  context.roundRect(x - 5.5, y - 5.5, 11, 11, 2.5);
  context.moveTo(x - 3, y);
  context.lineTo(x + 3, y);
  if (sign === "+") {
    context.moveTo(x, y - 3);
    context.lineTo(x, y + 3);
  }
  context.stroke();
  context.restore();
}

// All lines where they can be read; from far away only the name, as large as the box allows; then nothing.
function write(context, { label, lines }, { left, top, room, height, ink, veil, font, scale }) {
  const small = scale < 0.56;
  const size = small ? Math.min(10 / scale, height * 0.55, Math.max(7 / scale, room / (label.length * 0.602))) : 12;
  if (size * scale < 5) return;
  const fits = Math.max(2, Math.floor(room / (size * 0.602)));
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.direction = "ltr";
  context.fillStyle = ink;
  (small ? [label] : lines).forEach((line, i) => {
    context.globalAlpha = (i ? 0.76 : 1) * veil;
    context.font = `${i ? "" : "600 "}${size}px ${font}`;
    context.fillText(small && line.length > fits ? `${line.slice(0, fits - 1)}…` : line, left, small ? top + height / 2 : top + 13 + i * 16);
  });
}

function paintFrame(context, frame, state) {
  const { colours, scale, selected, hover } = state;
  const { x, y, width, height } = frame;
  const colour = kindColours[frame.work] ?? colours.text;
  context.save();
  context.fillStyle = colours.paper;
  rounded(context, x, y, width, height, 8);
  context.fill();
  context.globalAlpha = frame.kind === "call" ? 0.045 : 0.08;
  context.fillStyle = frame.kind === "group" ? colour : colours.text;
  context.fill();
  context.globalAlpha = 1;
  context.lineWidth = selected ? 3 : hover ? 1.8 : 1.2;
  context.strokeStyle = selected ? colours.chosen : frame.kind === "group" ? colour : colours.line;
  context.stroke();
  context.restore();
}

// The name of a frame, above the edges that cross it.
function paintTitle(context, frame, { colours, scale }) {
  if (scale < 0.42) return;
  const { x, y, width } = frame;
  const size = Math.min(Math.max(11.5, 9 / scale), 14);
  const fits = Math.floor((width - 34) / (size * 0.602));
  const text = frame.label.length > fits ? `${frame.label.slice(0, Math.max(1, fits - 1))}…` : frame.label;
  context.save();
  context.direction = "ltr";
  context.font = `600 ${size}px ${colours.font}`;
  context.textBaseline = "middle";
  context.fillStyle = colours.paper;
  context.globalAlpha = 0.82;
  context.fillRect(x + 8, y + 5, text.length * size * 0.602 + 6, 18);
  context.fillStyle = colours.text;
  context.globalAlpha = 0.78;
  context.fillText(text, x + 11, y + 14);
  context.globalAlpha = 1;
  if (frame.closes) paintSign(context, x + width - 13, y + 13, "−", colours.text, 0.85);
  context.restore();
}

function paintHeading(context, { text, x, y, width }, { colours, scale }) {
  const largest = 13 / Math.min(scale, 1);
  const size = Math.min(largest, Math.max(0.62 * largest, (width + 20) / (text.length * 0.602)));
  context.save();
  context.fillStyle = colours.text;
  context.globalAlpha = 0.62;
  context.direction = "ltr";
  context.font = `600 ${size}px ${colours.font}`;
  context.textBaseline = "bottom";
  const fits = Math.floor((width + 20) / (size * 0.602));
  if (fits > 3) context.fillText(text.length > fits ? `${text.slice(0, fits - 1)}…` : text, x, y + 14);
  context.globalAlpha = 0.25;
  context.fillRect(x, y + 18, width, 1 / Math.min(scale, 1));
  context.restore();
}

// Level and upright stretches meet in rounded corners; between rows that do not stand below each other a curve falls.
function trace(path, { route, kind }) {
  const points = [];
  for (let i = 0; i < route.length; i += 2) points.push([route[i], route[i + 1]]);
  path.moveTo(...points[0]);
  if (kind === "saved" || kind === "refused") return path.bezierCurveTo(...swing(route).slice(2));
  const straight = (i) => points[i][0] === points[i + 1][0] || points[i][1] === points[i + 1][1];
  const length = (i) => Math.abs(points[i][0] - points[i + 1][0]) + Math.abs(points[i][1] - points[i + 1][1]);
  for (let i = 0; i + 1 < points.length; i++) {
    const [[ax, ay], [bx, by]] = [points[i], points[i + 1]];
    if (!straight(i)) path.bezierCurveTo(ax, (ay + by) / 2, bx, (ay + by) / 2, bx, by);
    else if (i + 2 < points.length && straight(i + 1)) path.arcTo(bx, by, ...points[i + 2], Math.min(8, length(i) / 2, length(i + 1) / 2));
    else path.lineTo(bx, by);
  }
}

// From side to side of two boxes: start, two points that pull, end.
function swing(route) {
  const [[ax, ay], [bx, by]] = [route.slice(0, 2), route.slice(-2)];
  const reach = Math.max(60, Math.abs(bx - ax) * 0.4);
  return [ax, ay, ax + reach, ay, bx - reach * Math.sign(bx - ax || -1), by, bx, by];
}

// The points of an edge that a pointer may touch: a swing is followed in short stretches.
function touchable({ route, kind }) {
  if (kind !== "saved" && kind !== "refused") return route;
  const [ax, ay, px, py, qx, qy, bx, by] = swing(route);
  const at = (t, a, p, q, b) => (1 - t) ** 3 * a + 3 * (1 - t) ** 2 * t * p + 3 * (1 - t) * t ** 2 * q + t ** 3 * b;
  return Array.from({ length: 17 }, (_, i) => [at(i / 16, ax, px, qx, bx), at(i / 16, ay, py, qy, by)]).flat();
}

function arrow(path, { route, kind }) {
  if (kind === "refused") return;
  const [x, y] = route.slice(-2);
  if (kind === "saved") {
    const side = Math.sign(x - route[0]) || 1;
    path.moveTo(x, y); path.lineTo(x - 7 * side, y - 4); path.lineTo(x - 7 * side, y + 4);
  } else {
    path.moveTo(x, y); path.lineTo(x - 3.6, y - 7); path.lineTo(x + 3.6, y - 7);
  }
  path.closePath();
}

// Edges of one look share one path: some thousand are drawn in a few strokes.
function bundle(edges) {
  const bundles = new Map();
  for (const edge of edges) {
    const width = Math.round(edge.width);
    const key = `${edge.kind} ${width} ${edge.cornered}`;
    if (!bundles.has(key)) bundles.set(key, { kind: edge.kind, width, cornered: edge.cornered, line: new Path2D(), head: new Path2D() });
    const found = bundles.get(key);
    trace(found.line, edge);
    arrow(found.head, edge);
  }
  return [...bundles.values()];
}

function paintEdges(context, bundles, { colours, scale, quiet }) {
  for (const { kind, width, cornered, line, head } of bundles) {
    context.save();
    const colour = kind === "saved" ? SAVED : kind === "refused" ? REFUSED : colours.text;
    context.strokeStyle = context.fillStyle = colour;
    context.globalAlpha = (kind === "refused" ? 0.9 : kind === "saved" ? 0.55 : kind === "register" ? 0.42 : cornered ? 0.26 : 0.5) * (quiet ? 0.35 : 1);
    context.lineWidth = kind === "register" ? 1 : width;
    context.setLineDash(kind === "register" ? [2, 3] : kind === "refused" ? [6, 4] : []);
    context.stroke(line);
    context.setLineDash([]);
    if (scale > 0.3) context.fill(head);
    context.restore();
  }
}

// The edges of the chosen box: what it reads and what it writes.
function paintNear(context, edges, { colours }) {
  for (const edge of edges) {
    const [line, head] = [new Path2D(), new Path2D()];
    trace(line, edge);
    arrow(head, edge);
    context.save();
    context.strokeStyle = context.fillStyle = edge.kind === "saved" ? SAVED : edge.kind === "refused" ? REFUSED : colours.chosen;
    context.lineWidth = Math.max(1.8, edge.width);
    context.setLineDash(edge.kind === "register" ? [2, 3] : edge.kind === "refused" ? [6, 4] : []);
    context.stroke(line);
    context.setLineDash([]);
    context.fill(head);
    context.restore();
  }
}

// Replay: a joint of two boxes for every fusion taken so far, the last one in the colour of what is chosen.
function paintJoints(context, steps, taken, boxes, { colours }) {
  context.save();
  context.lineCap = "round";
  steps.slice(0, taken).forEach(({ parts }, i) => {
    const last = i === taken - 1;
    const [first, ...others] = parts.map((id) => boxes.get(id)).filter(Boolean);
    if (!first) return;
    context.strokeStyle = last ? colours.chosen : "#009E73";
    context.globalAlpha = last ? 0.95 : 0.5;
    context.lineWidth = last ? 12 : 9;
    for (const other of others) {
      context.beginPath();
      context.moveTo(first.x, first.y);
      context.lineTo(other.x, other.y);
      context.stroke();
    }
  });
  context.restore();
}

function distanceTo({ touch: route }, x, y) {
  let least = Infinity;
  for (let i = 0; i + 3 < route.length; i += 2) {
    const [ax, ay, bx, by] = route.slice(i, i + 4);
    const length = (bx - ax) ** 2 + (by - ay) ** 2 || 1;
    const along = Math.max(0, Math.min(1, ((x - ax) * (bx - ax) + (y - ay) * (by - ay)) / length));
    least = Math.min(least, Math.hypot(x - ax - along * (bx - ax), y - ay - along * (by - ay)));
  }
  return least;
}
