// Shows source text line by line, as text.
export default function ({ data, parentElement }) {
  const root = parentElement.querySelector(".code");
  root.style.maxHeight = `${data.height}px`;
  const lit = new Set(data.lit);
  root.replaceChildren(...data.text.split("\n").map((text, i) => {
    const line = document.createElement("div");
    line.dataset.line = i + 1;
    line.textContent = text;
    if (lit.has(i + 1)) line.className = "lit";
    return line;
  }));
  const first = root.querySelector(".lit");
  root.scrollTop = first ? Math.max(0, first.offsetTop - root.offsetTop - data.height / 3) : 0;
}
