// Moves the picture of an exported page, and fades what a search does not find.
const svg = document.querySelector("svg"), box = svg.viewBox.baseVal, whole = [box.x, box.y, box.width, box.height];
const at = (event) => {
  const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  return [place.x, place.y];
};
svg.addEventListener("wheel", (event) => {
  event.preventDefault();
  const [x, y] = at(event), factor = event.deltaY > 0 ? 1.15 : 1 / 1.15;
  box.x = x - (x - box.x) * factor; box.y = y - (y - box.y) * factor;
  box.width *= factor; box.height *= factor;
}, { passive: false });
let grip = null;
svg.addEventListener("pointerdown", (event) => { grip = at(event); svg.setPointerCapture(event.pointerId); });
svg.addEventListener("pointermove", (event) => {
  if (!grip) return;
  const [x, y] = at(event);
  box.x += grip[0] - x; box.y += grip[1] - y;
});
svg.addEventListener("pointerup", () => { grip = null; });
svg.addEventListener("dblclick", () => { [box.x, box.y, box.width, box.height] = whole; });
const words = document.querySelector("input");
words.addEventListener("input", () => {
  const wanted = words.value.trim().toLowerCase();
  for (const item of document.querySelectorAll("g.box, tbody tr"))
    item.style.opacity = !wanted || item.textContent.toLowerCase().includes(wanted) ? "" : "0.2";
});
