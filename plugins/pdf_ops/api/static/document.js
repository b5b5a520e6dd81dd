// A document's page as a picture beside its text. The document is read here, in the browser: the server hands out
// bytes and never opens one.
import { refresh, showTrouble } from "./page.js";
import "./redrive.js";

const picture = document.getElementById("picture");
const canvas = picture.querySelector("canvas");
const note = picture.querySelector("[data-note]");
let opening = null;

function say(text) {
  note.textContent = text;
  note.hidden = !text;
  canvas.hidden = Boolean(text);
}

async function open() {
  const { kind, content, vendor, scripts } = picture.dataset;
  const drawer = await import(kind === "tiff" ? "./draw_tiff.js" : "./draw_pdf.js");
  return drawer.open({ content, vendor, scripts, width: () => picture.clientWidth || 600 });
}

async function draw(number) {
  if (!canvas) return;
  try {
    opening ??= open();
    const opened = await opening;
    if (number > opened.pages) {
      say("The document has no such page.");
      return;
    }
    await opened.draw(canvas, number);
    canvas.setAttribute("aria-label", `Page ${number} as a picture; its text is beside it`);
    say("");
    canvas.dataset.drawn = number;
  } catch (error) {
    if (error?.name === "RenderingCancelledException") return;
    const why = error?.message ?? String(error);
    say(`The browser cannot draw this document: ${why}. What was read of it is here all the same.`);
  }
}

function current() {
  return Number(document.getElementById("text").dataset.page);
}

// Another page of the same document: only its text is asked for, and the open document drawn again.
async function turn(number) {
  const address = new URL(location.href);
  address.searchParams.set("page", number);
  try {
    await refresh(address.href);
    showTrouble("");
  } catch (problem) {
    showTrouble(problem.message);
    return;
  }
  history.replaceState(null, "", address);
  await draw(current());
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-page-link]");
  if (!link || event.defaultPrevented || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  if (link.getAttribute("aria-disabled") !== "true") turn(new URL(link.href).searchParams.get("page"));
});
document.addEventListener("submit", (event) => {
  if (!event.target.matches("[data-page-form]")) return;
  event.preventDefault();
  turn(event.target.elements.page.value);
});

if (canvas) {
  draw(current());
  let width = picture.clientWidth;
  let waiting = 0;
  new ResizeObserver(() => {
    if (picture.dataset.kind === "tiff" || Math.abs(picture.clientWidth - width) < 20) return;
    width = picture.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => draw(current()), 200);
  }).observe(picture);
}
