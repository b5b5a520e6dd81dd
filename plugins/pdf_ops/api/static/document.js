// A document's page as a picture beside its text. pdf.js reads the document here, in the browser, in a worker and
// without its scripts: the server hands out bytes and never opens a document.
import { refresh, showTrouble } from "./page.js";
import "./redrive.js";

const MAX_PIXELS = 16_000_000;
const picture = document.getElementById("picture");
const canvas = picture.querySelector("canvas");
const note = picture.querySelector("[data-note]");
let opened = null;
let drawing = null;

function say(text) {
  note.textContent = text;
  note.hidden = !text;
  canvas.hidden = Boolean(text);
}

async function open() {
  const folder = picture.dataset.pdfjs;
  const pdfjs = await import(`${folder}/build/pdf.min.mjs`);
  pdfjs.GlobalWorkerOptions.workerSrc = `${folder}/build/pdf.worker.min.mjs`;
  const loading = pdfjs.getDocument({
    url: new URL(picture.dataset.content, location.href).href,
    // Only the parts that a page needs are fetched.
    disableAutoFetch: true,
    disableStream: true,
    rangeChunkSize: 262_144,
    isEvalSupported: false,
    enableXfa: false,
    stopAtErrors: false,
    maxImageSize: 100_000_000,
    cMapUrl: `${folder}/cmaps/`,
    cMapPacked: true,
    standardFontDataUrl: `${folder}/standard_fonts/`,
    iccUrl: `${folder}/iccs/`,
    wasmUrl: `${folder}/wasm/`,
  });
  loading.onPassword = () => {
    loading.destroy();
    say("The document opens only with a password, so there is no picture of it.");
  };
  return loading.promise;
}

async function draw(number) {
  if (!canvas) return;
  drawing?.cancel();
  try {
    opened ??= open();
    const pdf = await opened;
    if (number > pdf.numPages) {
      say("The document has no such page any more.");
      return;
    }
    const page = await pdf.getPage(number);
    const natural = page.getViewport({ scale: 1 });
    const width = picture.clientWidth || 600;
    const density = Math.min(window.devicePixelRatio || 1, 2);
    const largest = Math.sqrt(MAX_PIXELS / (natural.width * natural.height));
    const viewport = page.getViewport({ scale: Math.min((width / natural.width) * density, largest) });
    canvas.width = Math.max(1, Math.round(viewport.width));
    canvas.height = Math.max(1, Math.round(viewport.height));
    canvas.setAttribute("aria-label", `Page ${number} as a picture; its text is beside it`);
    drawing = page.render({ canvas, viewport });
    await drawing.promise;
    say("");
    canvas.dataset.drawn = number;
  } catch (error) {
    if (error?.name === "RenderingCancelledException") return;
    if (!note.hidden && note.textContent.includes("password")) return;
    say(`The browser cannot draw this document (${error?.message ?? error}). What was read of it is here all the same.`);
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
    if (Math.abs(picture.clientWidth - width) < 20) return;
    width = picture.clientWidth;
    clearTimeout(waiting);
    waiting = setTimeout(() => draw(current()), 200);
  }).observe(picture);
}
