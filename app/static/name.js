// Shows a name as text; a click copies it.
export default function ({ data, parentElement }) {
  const button = parentElement.querySelector(".name");
  button.textContent = data;
  button.classList.remove("copied");
  button.onclick = () => navigator.clipboard?.writeText(data).then(() => button.classList.add("copied"));
}
